"""The contests, and the rows of the table that come of them."""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import inspections
import limits
import numpy as np
import precision
import recorded
import simulations
import workloads
from builders import left_open
from limits import Row, interleaved, ratio, several
from peers import PEERS, Peer
from workloads import Size

from simstudy.design.settings.cell import N_BLOCKS
from simstudy.kernels import nw_moments
from simstudy.replicates import allocation
from simstudy.replicates.batch import draws_at_once, simulate_batch
from simstudy.replicates.population import draws_of
from simstudy.verdicts.query_control import QueryControl

WORKS = ("W0", "W1", "whole W0", "whole W1")
_CALLS = 8  # of kernels in one round


def all_rows(sizes: Sequence[Size], rounds: int) -> Iterator[Row]:
    for size in sizes:
        for dtype in ("float32", "float64"):
            yield from bound_rows(replace(size, dtype=dtype), rounds)
        for work in WORKS:
            yield from contest_rows(size, work, rounds)
    for size, work in itertools.product(workloads.LAYERS, WORKS[:2]):
        yield from contest_rows(size, work, rounds)
    yield from scaling_rows(rounds)
    yield from few_query_rows(rounds)
    yield from population_rows()
    yield from precision.expansion_rows()
    yield from precision.control_rows()
    yield from simulations.simulation_rows(rounds)
    yield from inspections.inspection_rows()


def bound_rows(size: Size, rounds: int) -> Iterator[Row]:
    """Time per replicate, and as a share of a bound measured in the same rounds."""
    arrays = workloads.draw(size)
    mixed, n_mixed = limits.issue_job(size.dtype)
    for work in WORKS[:2]:
        job = functools.partial(workloads.by_us, arrays, work == "W1")
        seconds = interleaved([several(job, _CALLS), mixed], 3 * rounds)
        each = [t / (_CALLS * size.replicates) for t in seconds[0]]
        label = f"{size.name} {size.dtype}"
        yield Row(work, label, "simstudy", 1e6 * float(np.median(each)), "µs per replicate")
        needed = limits.operations_needed(size, work == "W1")
        yield Row(work, label, recorded.SHARE, ratio([needed * t / n_mixed for t in seconds[1]], each), "1")


def contest_rows(size: Size, work: str, rounds: int) -> Iterator[Row]:
    """Times of the peers over ours, round by round."""
    entered = [("simstudy", ours(size, work), size.replicates)]
    for peer in PEERS:
        if peer.missing:
            yield Row(work, size.name, peer.name, None, f"skipped: {peer.missing}")
            continue
        given = replace(size, replicates=max(size.replicates, peer.least_replicates))
        if (job := peer_job(peer, given, work)) is not None:
            entered.append((peer.name, job, given.replicates))
    calls = 1 if work.startswith("whole") else _CALLS
    seconds = interleaved([several(job, calls) for _, job, _ in entered], rounds)
    done = size.replicates * (N_BLOCKS if work.startswith("whole") else 1)
    yield Row(work, size.name, "simstudy", 1e6 * float(np.median(seconds[0])) / (calls * done), "µs per replicate")
    ratios = {}
    for (name, _, replicates), taken in zip(entered[1:], seconds[1:], strict=True):
        ratios[name] = ratio([t * done / replicates for t in taken], seconds[0])
        yield Row(work, size.name, name, ratios[name], "times simstudy")
    libraries = [found for name, found in ratios.items() if name != "C"]
    if libraries:
        yield Row(work, size.name, recorded.BEST, min(libraries, key=lambda found: found.median), "times simstudy")


def ours(size: Size, work: str) -> Callable[[], Any]:
    if work.startswith("whole"):
        made = workloads.cell(size, "drawn" if work.endswith("W0") else "integrated")
        return functools.partial(simulate_batch, [made], 0)
    return functools.partial(workloads.by_us, workloads.draw(size), work == "W1")


def peer_job(peer: Peer, size: Size, work: str) -> Callable[[], Any] | None:
    """The peer's call for a work, or None if it has none."""
    whole = work.startswith("whole")
    if (whole and peer.drawn is None) or (peer.name == "C" and size.logits != "distance"):
        return None
    arrays = workloads.draw(size)
    compute = peer.job(arrays, work.endswith("W1"))
    if not whole:
        return functools.partial(compute, arrays.keys, arrays.values)
    drawn = peer.drawn(size)

    def job() -> Any:
        keys, noise = drawn()
        return compute(keys, workloads.target(keys) + np.asarray(0.5, size.dtype) * noise)

    return job


def scaling_rows(rounds: int, n: int = 1024) -> Iterator[Row]:
    """Estimates of projected keys where logits grow, keys are hidden and heads are many: ratios of our own times."""
    grown = [_heads(n, 4, 64, 64, logits_by=factor) for factor in (1.0, 16.0)]
    yield Row("W0", "p = 64", "logits 16 times larger", ratio(*interleaved(grown, rounds)), "of the speed")
    distance = np.arange(n)[:, None] - np.arange(n)
    size, half = f"p = 64, {n} queries", np.random.default_rng(1).random((n, n)) < 0.5
    bands = {f"band of {2 * width + 1} keys": abs(distance) <= width for width in (64, 16)}
    for name, visible in {"causal mask": distance >= 0, **bands}.items():
        jobs = [_heads(n, 4, n, 64, visible=each, replicates=_CALLS) for each in (None, visible)]
        yield Row("W0", size, name, ratio(*interleaved(jobs, rounds)), "times the speed")
    masked = _heads(n, 4, n, 64, visible=half)
    found = ratio(*interleaved([_numpy_masked(masked), masked], rounds))
    yield Row("W0", size, "half of the keys hidden, NumPy", found, "times simstudy")
    few, many = interleaved([several(_heads(256, 64, 4, 4), 4), _heads(256, 256, 4, 4)], rounds)
    yield Row("W0", "256 keys, 4 queries", "256 heads for 64", ratio(few, many), "of the speed of a head")


def _heads(n, n_heads, n_queries, p, logits_by=1.0, visible=None, replicates=1) -> Any:
    rng, shapes = np.random.default_rng(0), ((replicates, n_heads, p, n), (replicates, n))
    keys, values = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    # Queries, and the flags of a key, side by side, as the package hands them on.
    queries = logits_by * rng.standard_normal((n_heads, p, n_queries), dtype=np.float32).transpose(2, 0, 1)
    flags = None if visible is None else np.asfortranarray(visible)
    return functools.partial(nw_moments, keys, values, None, queries, p**0.5, "dot_product", False, flags)


def _numpy_masked(ours: Any) -> Callable[[], Any]:
    """The same by NumPy, with a mask of zeros and ones."""
    (keys,), (y,), _, queries, root_p, *_, flags = ours.args
    scaled = np.ascontiguousarray(queries.transpose(1, 0, 2) / root_p**2, keys.dtype)
    mask, sides = flags.astype(keys.dtype, "C"), np.stack([y, np.ones_like(y)], axis=1)

    def job() -> np.ndarray:
        out = np.empty((len(queries), len(keys)), keys.dtype)
        for start in range(0, len(queries), 16):
            weights = scaled[:, start : start + 16] @ keys
            np.exp(weights, out=weights)
            weights *= mask[start : start + 16]
            sums = weights @ sides
            out[start : start + 16] = (sums[..., 0] / sums[..., 1]).T
        return out

    return job


def few_query_rows(rounds: int, n: int = 4096) -> Iterator[Row]:
    """Moments of drawn keys of 768 features at 4 queries, whose 48 logits and the target see 49 coordinates of them."""
    n_heads, batch_size = 12, 16
    cell = workloads.attention_cell(n_keys=n, n_heads=n_heads, batch_size=batch_size)
    rng, real = np.random.default_rng(0), np.float32

    def numpy(n_features: int) -> None:
        slopes = rng.standard_normal((4 * n_heads, n_features), dtype=real) / real(n_features**0.5)
        for _ in range(batch_size):
            keys = rng.standard_normal((n_features, n), dtype=real)
            weights = slopes @ keys
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=1, keepdims=True)
            errors, by_query = weights @ (2 * np.sin(keys[0])), weights.reshape(4, n_heads, n)
            np.add(by_query @ by_query.mT, errors.reshape(4, n_heads, 1) * errors.reshape(4, 1, n_heads))

    jobs = [functools.partial(simulate_batch, [cell], 0), *(functools.partial(numpy, d) for d in (49, 768))]
    ours, span, whole = interleaved(jobs, rounds)
    size = f"{n} keys, 768 features, 12 heads, 4 queries"
    yield Row("whole W1", size, "simstudy", 1e6 * float(np.median(ours)) / batch_size, "µs per replicate")
    yield Row("whole W1", size, "NumPy, coordinates drawn", ratio(span, ours), "times simstudy")
    yield Row("whole W1", size, "NumPy, keys drawn", ratio(whole, ours), "times simstudy")


def population_rows() -> Iterator[Row]:
    """Time of 256 plain replicates a draw over that of the choice, without its pilot, each to 1 % of one measure."""
    theory = QueryControl()
    for n_keys, n_heads, head_dim, n_queries in workloads.POPULATIONS:
        size = {"n_keys": n_keys, "n_heads": n_heads, "population": ["queries"], "control": "expansion"}
        for measure in allocation.MEASURES:
            (grid,) = left_open(workloads.attention_cell(n_queries, head_dim, **size), relative_mcse={measure: 0.01})
            chosen, taken = allocation.quickest([grid], False, theory), []
            for settings in ({"batch_size": 256, "control": "none"}, chosen):
                job, a_draw = grid.cell.with_simulation(**settings), settings["batch_size"]
                at_once = draws_at_once(job, "cpu")
                draws = at_once * max(1, 128 // a_draw // at_once // (1 + n_keys // 1024))
                simulate_batch([job], draws, "cpu", at_once)
                start = time.process_time()
                for number in range(0, draws, at_once):
                    draws_of(job, simulate_batch([job], number, "cpu", at_once)[0], number)
                seconds = (time.process_time() - start) / draws
                others = (job.with_simulation(seed=seed) for seed in (11, 12))
                found = [allocation.variances(each, grid.precision, theory)[:, 0] for each in others]
                between, within = np.mean(found, axis=0)
                least = allocation.first_target(grid.precision, a_draw, population=True)
                taken.append(seconds * max(between + within / (a_draw - 1), least))
            label = f"population, {n_keys} keys, {n_heads} heads of {head_dim}, {n_queries} queries, {measure}"
            yield Row("whole W1", label, f"256, for {chosen}", taken[0] / taken[1], "times the time")
