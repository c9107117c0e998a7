#!/usr/bin/env bash
# Guess: Philox of a key begins with the block of counter 0 and counts up, so that one library's stream is another's.
# Found (versions below; all but NumPy have Philox4x32-10 of the paper): torch's C++ engine does so.  NumPy has Philox4x64-10,
# and it, like randomgen, counts before the first block: the counter that is given is never used.  jax's rbg has the key a second
# time as the upper half of the counter, so that most counters cannot be had.  cuRAND's host generator, which needs no card,
# counts up the third word of the counter to 65535, and then the first.
# Why it matters: the same generator, key and counter are five streams; none can check another without a shift.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 jax==0.10.2 numpy==2.4.6 randomgen==2.5.1 \
    nvidia-curand-cu12==10.3.10.19
"$work/venv/bin/python" -W ignore - "$work" <<'PY'
import ctypes
import pathlib
import subprocess
import sys

import jax
import numpy as np
import randomgen
import torch

KEY = (0xA4093822, 0x299F31D0)
SEED = KEY[0] | KEY[1] << 32


def block(*counter):
    """Philox4x32-10 (Salmon et al. 2011)."""
    (a, b, c, d), (k, m) = counter, KEY
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (y >> 32) ^ b ^ k, y % 2**32, (x >> 32) ^ d ^ m, x % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return [a, b, c, d]


# Random123's known answers, of which the second is that of Philox4x64-10 for a counter and a key of zeros.
assert block(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
assert np.random.Philox(key=0, counter=2**256 - 1).random_raw() == 0x16554D9ECA36314C
print("numpy: Philox4x64-10, counter 0 is reached from 2^256 - 1")

for start, first in ((0, 1), (2**128 - 1, 0)):
    raw = randomgen.Philox(key=SEED, counter=start, number=4, width=32).random_raw(4)
    assert raw.tolist() == block(first, 0, 0, 0)
print("randomgen: counter 0 is reached from 2^128 - 1")

key = jax.random.wrap_key_data(np.array([*KEY, 33, 44], np.uint32), impl="rbg")
assert jax.random.bits(key, (4,), "uint32").tolist() == block(33, 44, *KEY)
print("jax rbg: counter (33, 44, key)")

work, place = pathlib.Path(sys.argv[1]), pathlib.Path(torch.__file__).parent
source = "at::Philox4_32 g(0x%xull, 0, 0); for (int i = 0; i < 8; i++) std::printf(\"%%u \", g());" % SEED
(work / "engine.cpp").write_text("#include <ATen/core/PhiloxRNGEngine.h>\n#include <cstdio>\nint main() { %s }\n" % source)
subprocess.run(["c++", "-std=c++20", f"-I{place}/include", "engine.cpp", f"-L{place}/lib", "-lc10",
                f"-Wl,-rpath,{place}/lib", "-o", "engine"], cwd=work, check=True)
words = subprocess.run([work / "engine"], capture_output=True, text=True, check=True).stdout.split()
assert [*map(int, words)] == block(0, 0, 0, 0) + block(1, 0, 0, 0)
print("torch's engine: counters (0, 0, 0, 0) and (1, 0, 0, 0)")

(library,) = (pathlib.Path(np.__file__).parents[1] / "nvidia" / "curand" / "lib").glob("libcurand.so*")
curand, generator, found = ctypes.CDLL(library), ctypes.c_void_p(), np.zeros((65538, 4), np.uint32)
assert curand.curandCreateGeneratorHost(ctypes.byref(generator), 161) == 0  # Philox4x32-10
assert curand.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(SEED)) == 0
assert curand.curandGenerate(generator, ctypes.c_void_p(found.ctypes.data), ctypes.c_size_t(found.size)) == 0
for number, counter in ((0, (0, 0, 0, 0)), (1, (0, 0, 1, 0)), (65535, (0, 0, 65535, 0)), (65536, (1, 0, 0, 0)), (65537, (1, 0, 1, 0))):
    assert found[number].tolist() == block(*counter)
    print(f"cuRAND: block {number} has the counter {counter}")
PY
