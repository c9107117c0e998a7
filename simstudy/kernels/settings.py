"""Settings of Numba and the processor that it compiles for, without Numba's file in the current folder."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

with contextlib.chdir(Path(__file__).parent):
    import numba
from llvmlite import binding
from numba.core.codegen import get_host_cpu_features

_config: Any = numba.config
# Numba reads its file again before it compiles, if it is a regular file.
_config._config_fname = os.devnull
if _config.CPU_FEATURES is None:
    _config.CPU_FEATURES = get_host_cpu_features()
    if "+avx512f" in _config.CPU_FEATURES:
        # LLVM prefers 256-bit vectors for most processors with 512 bits, a choice of 2017: on a server of 2024 it
        # nearly halves the rate of products (measured 124 instead of 220 GFLOP/s).
        _config.CPU_FEATURES += ",-prefer-256-bit"

VECTOR_BYTES = next(
    (width for feature, width in (("+avx512f", 64), ("+avx2", 32)) if feature in _config.CPU_FEATURES), 16
)

_DECIDING = re.compile(
    r"(?!.*(CUDA|WARN))(OPT|BOUNDSCHECK|.*VECTORIZE|.*SVML|((EN|DIS)ABLE|DEBUG|LLVM|EXTEND|PARFOR|NRT|JIT)_?.*)"
)


def processor() -> str:
    """Return processor, features and settings that kernels are compiled for, which determine the last bits of sums."""
    stated = (f"{name}={value}" for name, value in sorted(vars(_config).items()) if _DECIDING.fullmatch(name))
    return " ".join([_config.CPU_NAME or binding.get_host_cpu_name(), _config.CPU_FEATURES, *stated])
