"""Keys that pass in tiles: against torch on the same tiles, and how time and memory grow with each size."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from builders import minimal_cell
from measure import Row, interleaved, ratio, spread
from peers import PEERS

from simstudy.attention import learner_of
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.tiling import keys_in_tile, passes_in_tiles


@dataclass(frozen=True)
class Large:
    """One replicate of heads on many keys."""

    keys: int = 102_400
    features: int = 768
    heads: int = 12
    queries: int = 64
    cells: int = 1
    p: int = 64


MODEL = Large()
"""The width of BERT's base model.  Time is proportional to keys, so that these stand for a million."""
GROWING = Large(keys=67_584, features=512, heads=8)
"""Of twice the size, each size still has heads that fit into the features."""


def cells(size: Large, noise_treatment: str = "integrated") -> list[Cell]:
    """Cells that differ in their bandwidth, which starts from that of attention."""
    return [
        minimal_cell(
            n_keys=size.keys, n_features=size.features, n_heads=size.heads, head_dim=size.p, arrangement="haar",
            bandwidth=size.p**0.25 + 0.01 * k, noise_sd=0.5, dtype="float32", noise_treatment=noise_treatment,
            regression={"kind": "ridge"}, queries={"kind": "gaussian", "count": size.queries},
        )
        for k in range(size.cells)
    ]  # fmt: skip


def ours(size: Large, noise_treatment: str = "integrated") -> Callable[[], Any]:
    learners = [learner_of(cell) for cell in cells(size, noise_treatment)]

    def job() -> None:
        shared = SharedData(learners[0].cell, 0, 1)
        for learner in learners:
            learner.evaluate(shared)

    return job


def torch_job(size: Large, work: str) -> Callable[[], Any]:
    """The same by torch, in the same tiles: keys drawn, one product for all heads, fused attention or a softmax.

    −|k|²/2 goes into the mask, which takes a third of the time that one more dimension takes at p = 64, and values have
    as many dimensions as keys: else attention is not fused.
    """
    import torch

    torch.set_num_threads(1)
    (cell,) = cells(size)
    length, n_heads, p = keys_in_tile(cell), size.heads, size.p
    stacked = torch.randn(n_heads * p, size.features) / math.sqrt(size.features)
    queries = torch.randn(n_heads, size.queries, p) / math.sqrt(p)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def tile(n: int) -> Any:
        x = torch.randn(n, size.features)
        y = torch.sin(x[:, 0]) + 0.5 * torch.randn(n) if work == "estimates" else torch.sin(x[:, 0])
        keys = (x @ stacked.T).view(n, n_heads, p).transpose(0, 1)
        offsets = (-0.5 / math.sqrt(p)) * keys.square().sum(-1)[:, None]
        return (estimates if work == "estimates" else moments)(keys, offsets, y)

    def estimates(keys: Any, offsets: Any, y: Any) -> Any:
        values = torch.nn.functional.pad(y[:, None], (0, p - 1)).expand(1, n_heads, -1, -1)
        mask = offsets[None].expand(-1, -1, size.queries, -1)
        found, logs = fused(queries[None], keys[None], values, attn_mask=mask, scale=1.0)
        return logs, found[..., 0]

    def moments(keys: Any, offsets: Any, y: Any) -> Any:
        parts = []
        for chunk in queries.split(8, dim=1):
            scores = torch.baddbmm(offsets, chunk, keys.mT)
            logs = scores.logsumexp(-1)
            rows = scores.sub_(logs[..., None]).exp_().transpose(0, 1).contiguous()
            parts.append((logs.T, rows @ y, rows @ rows.mT))
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    def job() -> Any:
        with torch.inference_mode():
            parts = [tile(min(length, size.keys - start)) for start in range(0, size.keys, length)]
            logs, *found = (torch.stack(each).double() for each in zip(*parts, strict=True))
            shares = torch.softmax(logs, dim=0)
            sums = [(shares * found[0]).sum(0)]
            return [*sums, *((shares[..., None] * shares[..., None, :] * gram).sum(0) for gram in found[1:])]

    return job


def contest_rows(size: Large, rounds: int) -> Iterator[Row]:
    """Time of torch over ours for one replicate, keys drawn by both."""
    missing = next(peer for peer in PEERS if peer.needs == "torch").missing
    label = f"n = {size.keys}, d = {size.features}, H = {size.heads}, p = {size.p}, Q = {size.queries}"
    for work, treatment in (("estimates", "drawn"), ("moments", "integrated")):
        jobs = [ours(size, treatment), *([] if missing else [torch_job(size, work)])]
        own, *others = interleaved(jobs, rounds)
        yield Row(f"large, {work}", label, "simstudy", 1e6 * float(np.median(own)) / size.keys, "µs per key")
        if missing:
            yield Row(f"large, {work}", label, "torch", None, f"skipped: {missing}")
        for taken in others:
            yield Row(f"large, {work}", label, "torch", ratio(taken, own), "times our time")


def growth_rows(size: Large, rounds: int) -> Iterator[Row]:
    """Exponents of processor time and of peak memory: logarithms to base 2 of what each doubling multiplies them by."""
    assert all(passes_in_tiles(cell) for cell in cells(size))
    for name in ("keys", "features", "heads", "queries", "cells"):
        sizes = [replace(size, **{name: getattr(size, name) * factor}) for factor in (1, 2, 4)]
        jobs = [ours(each) for each in sizes]
        seconds = np.array(interleaved(jobs, rounds))
        peaks = np.array([[_peak(job)] for job in jobs])
        for what, measured in (("time", seconds), ("memory", peaks)):
            exponents = np.diff(np.log2(measured), axis=0).ravel().tolist()
            values = " → ".join(str(getattr(each, name)) for each in sizes)
            yield Row(f"growth of {what}", f"{name} {values}", "simstudy", spread(exponents), "exponent")
            unit, scale = ("s", 1.0) if what == "time" else ("MiB at peak, beside what is imported", 2.0**-20)
            yield Row(f"growth of {what}", f"{name} {values}", "largest", scale * float(np.median(measured[-1])), unit)


def _peak(job: Callable[[], Any]) -> float:
    tracemalloc.start()
    job()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def large_rows(rounds: int) -> Iterator[Row]:
    """All of them: a round takes seconds."""
    yield from contest_rows(MODEL, rounds)
    yield from growth_rows(GROWING, max(1, rounds // 3))
