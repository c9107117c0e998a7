"""Parts of a batch on a GPU, moments beside torch, a study beside 16 cores: ``python tests/benchmarks/gpu.py``.

In six minutes; with the argument ``tiny`` also on Numba's simulator.
"""

import collections
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent), str(TESTS / "kernels")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from limits import interleaved, ratio  # noqa: E402
from peers import _augmented, _torch_augmented  # noqa: E402
from workloads import SIZES, Size, cell, draw  # noqa: E402

from simstudy.design.settings.cell import Cell  # noqa: E402
from simstudy.kernels import cuda, errors, nw_moments, project  # noqa: E402
from simstudy.kernels.devices import computing_on, gpu_name, on_device, stream  # noqa: E402
from simstudy.replicates.batch import simulate_batch  # noqa: E402

TINY = sys.argv[1:] == ["tiny"]
if TINY:
    import simulator  # noqa: F401
S1, ROUNDS = (Size("S1", 24, 2, 2, 1, 1, 1), 1) if TINY else (replace(SIZES[0], replicates=32), 9)
AT_ONCE = 2**28  # bytes of weights that torch makes in one call
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARTS = {"_start": "", "on_device": "copies to the GPU", "to_host": "copies to the host", "new_array": "allocations"}


def milliseconds(made: Cell) -> float:
    start = time.perf_counter()
    for number in range(ROUNDS):
        simulate_batch([made], number, "cuda")
    return 1e3 * (time.perf_counter() - start) / ROUNDS


def print_batch(name: str, made: Cell) -> None:
    """Print the time of a batch; then of each kernel, of copies and allocations, each waited for, and of the rest."""
    milliseconds(made)
    print(f"{name}: {milliseconds(made):.3f} ms", flush=True)
    spent: collections.Counter[str] = collections.Counter()

    def timed(function: Callable[..., Any], told: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = function(*arguments)
            stream().synchronize()
            spent[told or arguments[0].__name__] += 1e3 * (time.perf_counter() - start) / ROUNDS
            return found

        return call

    own = {part: timed(getattr(cuda, part), told) for part, told in PARTS.items()}
    with mock.patch.multiple(cuda, **own), mock.patch.object(errors, "to_host", own["to_host"]):
        spent["the host"] = milliseconds(made) - spent.total()
    for part, each in spent.most_common():
        print(f"  {part}: {each:.3f} ms", flush=True)


def ours(size: Size) -> Callable[[], None]:
    arrays, real = draw(size), np.dtype(size.dtype)
    keys = project(on_device(arrays.keys, real), arrays.projections)
    values, ones = on_device(arrays.values, real), on_device(np.ones_like(arrays.values), real)

    def job() -> None:
        nw_moments(keys, values, ones, arrays.seen[1], arrays.bandwidth, "distance")
        stream().synchronize()

    return job


def by_torch(size: Size) -> Callable[[], list[Any]]:
    arrays = draw(size)
    stacked, queries = (torch.from_numpy(x.copy()).to(DEVICE) for x in _augmented(arrays))
    keys, values = (torch.from_numpy(x).to(DEVICE) for x in (arrays.keys, arrays.values))
    keys, step = _torch_augmented(torch, keys, stacked, queries), AT_ONCE // (queries[..., 0].numel() * size.keys * 8)

    def moments(k: Any, y: Any) -> Any:
        rows = torch.softmax(queries @ k, dim=-1).transpose(1, 2).contiguous()
        return rows @ y[:, None, :, None], rows @ rows.mT

    def job() -> list[Any]:
        with torch.inference_mode():
            found = [moments(k, y) for k, y in zip(keys.split(step), values.split(step), strict=True)]
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return found

    return job


def main() -> None:
    print(f"{gpu_name()}; torch {torch.__version__} on {DEVICE}")
    made = cell(S1, "integrated")
    control = made.simulation.model_copy(update={"control": "expansion"})
    print_batch("batch, plain", made)
    print_batch("batch, with control", made.model_copy(update={"simulation": control}))
    for more in () if TINY else (4, 8):
        print_batch(f"batch {more} times as large", cell(replace(S1, replicates=32 * more), "integrated"))
    for n_heads, n_replicates in ((2, 1),) if TINY else ((4, 512), (8, 512), (16, 256), (64, 16)):
        for dtype in ("float32", "float64"):
            size = replace(S1, heads=n_heads, replicates=n_replicates, dtype=dtype)
            # Seconds that pass: the processor only waits.
            with computing_on("cuda"), mock.patch.object(time, "process_time", time.perf_counter):
                mine, theirs = interleaved([ours(size), by_torch(size)], ROUNDS)
            print(f"moments of {n_heads} heads, {dtype}: torch takes {ratio(theirs, mine)}", flush=True)
    for how in () if TINY else ("cuda", "processes --workers 16"):
        with tempfile.TemporaryDirectory() as folder:
            command = f"-m simstudy run principal-angles --profile full --output {folder} --executor {how}".split()
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], cwd=TESTS.parent, check=True, capture_output=True, timeout=150)
            print(f"principal-angles, full, {how}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
