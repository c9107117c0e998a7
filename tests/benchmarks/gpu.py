"""Heads on a GPU against torch on the same one, batches against a core: ``python tests/benchmarks/gpu.py``."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from limits import Ratio, interleaved, ratio  # noqa: E402
from workloads import SIZES, Size, cell, draw  # noqa: E402

from simstudy.kernels import nw_moments, project  # noqa: E402
from simstudy.kernels.devices import computing_on, gpu_name, on_device, stream  # noqa: E402
from simstudy.replicates.batch import simulate_batch  # noqa: E402

REPLICATES = {"S1": 512, "S2": 64, "S3": 4096, "64 heads": 16}
AT_ONCE = 2**28
"""Bytes of weights that torch makes in one call."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ours(size: Size, with_gram: bool) -> Callable[[], None]:
    arrays, real = draw(size), np.dtype(size.dtype)
    keys = project(on_device(arrays.keys, real), arrays.projections)
    values, ones = on_device(arrays.values, real), on_device(np.ones_like(arrays.values), real)

    def job() -> None:
        nw_moments(keys, values, ones if with_gram else None, arrays.projected_points, arrays.bandwidth, "distance")
        stream().synchronize()

    return job


def by_torch(size: Size, with_gram: bool, fused: bool) -> Callable[[], list[Any]]:
    arrays, n_heads = draw(size), size.heads
    keys, values = (torch.from_numpy(x).to(DEVICE) for x in (arrays.keys, arrays.values))
    stacked = torch.from_numpy(arrays.projections.transpose(0, 2, 1).reshape(n_heads * size.p, -1).copy()).to(DEVICE)
    projected = (stacked @ keys).unflatten(1, (n_heads, -1))
    # One more dimension stands for −|k|²/2, and zeros up to a multiple of 8, as fused attention wants.
    keys = torch.cat([projected, -0.5 * projected.square().sum(2, keepdim=True)], dim=2)
    points = np.pad(arrays.projected_points, ((0, 0), (0, 0), (0, 1)), constant_values=1.0) / arrays.bandwidth**2
    queries = torch.from_numpy(points.transpose(1, 0, 2).astype(size.dtype)).to(DEVICE)
    pad = (0, -queries.shape[-1] % 8)
    step = max(1, AT_ONCE // (n_heads * size.queries * size.keys * values.itemsize))

    def explicit(k: Any, y: Any) -> Any:
        rows = torch.softmax(queries @ k, dim=-1).transpose(1, 2).contiguous()
        return rows @ y[:, None, :, None], rows @ rows.mT if with_gram else None

    def attention(k: Any, y: Any) -> Any:
        q, k = (torch.nn.functional.pad(x, pad) for x in (queries.expand(len(k), -1, -1, -1), k.mT))
        v = torch.nn.functional.pad(y[:, None, :, None].expand(-1, n_heads, -1, 1), (0, k.shape[-1] - 1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    def job() -> list[Any]:
        with torch.inference_mode():
            way, pieces = attention if fused else explicit, (keys.split(step), values.split(step))
            found = [way(k, y) for k, y in zip(*pieces, strict=True)]
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return found

    return job


def contest(size: Size, with_gram: bool) -> Ratio:
    """Time of torch, the better of its ways, over ours."""
    with computing_on("cuda"):
        theirs = [by_torch(size, with_gram, fused) for fused in {False, not with_gram}]
        mine, *times = interleaved([ours(size, with_gram), *theirs], 15, time.perf_counter)
    return ratio(min(times, key=sum), mine)


def main() -> None:
    print(f"{gpu_name()}; torch {torch.__version__} on {DEVICE}")
    for size in (*SIZES, Size("64 heads", 1024, 64, 64, 16, 1)):
        for dtype in ("float32", "float64"):
            big = replace(size, replicates=REPLICATES[size.name], dtype=dtype)
            found = f"{contest(big, False)} for estimates, {contest(big, True)} for moments"
            print(f"{size.name} {dtype}: torch takes {found}")
        made = cell(replace(size, replicates=big.replicates // 16), "integrated")
        jobs = [lambda made=made: simulate_batch([made], 0, "cuda"), lambda made=made: simulate_batch([made], 0)]
        gpu, cpu = interleaved(jobs, 3, time.perf_counter)
        print(f"{size.name}, batches of {made.simulation.batch_size}: a core takes {ratio(cpu, gpu)}")


if __name__ == "__main__":
    main()
