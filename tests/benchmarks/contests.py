"""The contests, and the rows of the table that come of them."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import bookkeeping
import limits
import numpy as np
import recorded
import simulations
import workloads
from limits import Row, interleaved, ratio, several
from peers import PEERS, Peer
from workloads import Size

from simstudy.design.settings.cell import N_BLOCKS
from simstudy.design.settings.tables import Simulation

WORKS = ("W0", "W1", "whole W0", "whole W1")
_CALLS = 8
"""Calls of kernels in one round."""
_DEFAULT_BATCH = Simulation.model_fields["batch_size"].default


def all_rows(sizes: Sequence[Size], rounds: int) -> list[Row]:
    rows = [*limit_rows()]
    for size in sizes:
        for dtype in ("float32", "float64"):
            rows += bound_rows(replace(size, dtype=dtype), rounds)
        for work in WORKS:
            rows += contest_rows(size, work, rounds)
    rows += costs(rounds)
    rows += surroundings(sizes, rounds)
    return rows


def limit_rows() -> Iterator[Row]:
    for dtype in ("float32", "float64"):
        yield Row("limit", dtype, "fused multiply-add", 2e-9 * limits.rate(*limits.fma_job(dtype)), "GFLOP/s")
        yield Row(
            "limit",
            dtype,
            "products and comparisons, one to one, in registers",
            1e-9 * limits.rate(*limits.issue_job(dtype)),
            "Gop/s",
        )


def bound_rows(size: Size, rounds: int) -> Iterator[Row]:
    """Time per replicate, and as a share of two bounds measured in the same rounds."""
    arrays = workloads.draw(size)
    fused, n_fused = limits.fma_job(size.dtype)
    mixed, n_mixed = limits.issue_job(size.dtype)
    for work, job in (("W0", workloads.estimates), ("W1", workloads.moments)):
        seconds = interleaved([several(functools.partial(job, arrays), _CALLS), fused, mixed], 3 * rounds)
        each = [t / (_CALLS * size.replicates) for t in seconds[0]]
        with_gram = work == "W1"
        label = f"{size.name} {size.dtype}"
        yield Row(work, label, "simstudy", 1e6 * float(np.median(each)), "µs per replicate")
        needed = limits.products_needed(size, with_gram)
        bound = [needed * t / n_fused for t in seconds[1]]
        yield Row(work, label, "share of the bound by products", ratio(bound, each), "1")
        needed = limits.operations_needed(size, with_gram)
        bound = [needed * t / n_mixed for t in seconds[2]]
        yield Row(work, label, recorded.SHARE, ratio(bound, each), "1")


def contest_rows(size: Size, work: str, rounds: int) -> Iterator[Row]:
    """Times of the peers over ours, round by round."""
    names, jobs, computed = ["simstudy"], [ours(size, work)], []
    for peer in PEERS:
        if peer.missing:
            yield Row(work, size.name, peer.name, None, f"skipped: {peer.missing}")
            continue
        given = replace(size, replicates=max(size.replicates, peer.least_replicates))
        job = peer_job(peer, given, work)
        if job is not None:
            names.append(peer.name)
            jobs.append(job)
            computed.append(given.replicates)
    calls = 1 if work.startswith("whole") else _CALLS
    seconds = interleaved([several(job, calls) for job in jobs], rounds)
    done = whole_replicates(size) if work.startswith("whole") else size.replicates
    yield Row(work, size.name, "simstudy", 1e6 * float(np.median(seconds[0])) / (calls * done), "µs per replicate")
    for name, replicates, taken in zip(names[1:], computed, seconds[1:], strict=True):
        scaled = [t * done / replicates for t in taken]
        yield Row(work, size.name, name, ratio(scaled, seconds[0]), "times simstudy")


def whole_replicates(size: Size) -> int:
    """Replicates in one batch of the whole job: as many in each of its blocks as in one call."""
    return workloads.cell(size, "drawn").simulation.batch_size


def ours(size: Size, work: str) -> Callable[[], Any]:
    if work.startswith("whole"):
        made = workloads.cell(size, "drawn" if work.endswith("W0") else "integrated")
        return functools.partial(workloads.whole_job, made)
    arrays = workloads.draw(size)
    return functools.partial(workloads.estimates if work == "W0" else workloads.moments, arrays)


def peer_job(peer: Peer, size: Size, work: str) -> Callable[[], Any] | None:
    """The peer's call for a work, or None if it has none."""
    make = peer.estimates if work.endswith("W0") else peer.moments
    whole = work.startswith("whole")
    if make is None or (whole and peer.drawn is None):
        return None
    arrays = workloads.draw(size)
    compute = make(arrays)
    if not whole:
        return functools.partial(compute, arrays.keys, arrays.values)
    drawn = peer.drawn(size)

    def job() -> Any:
        keys, noise = drawn()
        return compute(keys, workloads.target(keys) + np.asarray(0.5, size.dtype) * noise)

    return job


def costs(rounds: int) -> Iterator[Row]:
    """CPU seconds of functions of the user's own."""
    yield from simulations.simulation_rows(rounds)


def surroundings(sizes: Sequence[Size], rounds: int) -> Iterator[Row]:
    """Two threads, and Dask: on all cores again."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    for size in sizes:
        repeats = max(1, round(0.2 / limits.fastest(functools.partial(workloads.moments, workloads.draw(size)), 3)))
        yield Row("W1", size.name, "two threads", limits.two_threads(workloads.draw(size), repeats, 5), "speed-up")
    for size in sizes:
        made = workloads.cell(replace(size, replicates=_DEFAULT_BATCH // N_BLOCKS), "integrated")
        batches = max(4, round(6.0 / limits.fastest(functools.partial(workloads.whole_job, made), 3)))
        for executor, overhead in bookkeeping.dask_overhead(made, batches, 3).items():
            yield Row("batches", size.name, f"Dask, one of its {executor}", overhead, "times a loop")
