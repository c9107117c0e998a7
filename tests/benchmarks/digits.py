"""Cost of a digit: CPU seconds to a Monte Carlo error of 1 %.

A study of two geometries of four heads, by this package (noise integrated out, a control variate where there is a
signal) and by NumPy (noise drawn), both geometries on the same data.  What takes t seconds and leaves a relative error
e needs t (e / 1 %)^2 seconds.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import limits
import numpy as np
from builders import minimal_cell
from limits import Row
from peers import numpy_drawn, numpy_estimates
from workloads import Arrays, Size

from simstudy.data.heads import key_projections, query_points
from simstudy.design.settings.cell import Cell
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured

MEASURES = ("ensemble_variance", "mean_covariance", "mse")
DIFFERENCE = "difference of mse"


class Target(NamedTuple):
    """What is estimated: regression function m of the schema, the same of keys (R, d, n), noise."""

    name: str
    regression: Any
    values: Any
    noise_sd: float
    control: str = "expansion"


def _no_signal(keys: np.ndarray) -> np.ndarray:
    return np.zeros_like(keys[:, 0])


def _signal(keys: np.ndarray) -> np.ndarray:
    return 2 * np.sin(keys[:, 0]) + keys[:, 3] * keys[:, 5]


SIGNAL = {
    "kind": "sum",
    "terms": [{"kind": "ridge", "amplitude": 2.0, "direction": [1.0]}, {"kind": "interaction", "coordinates": [4, 6]}],
}
TARGETS = (Target("noise alone", "zero", _no_signal, 1.0), Target("signal", SIGNAL, _signal, 0.3))
ANGLES = (30.0, 90.0)
SIZE = Size("two geometries", 256, 8, 4, 16, 4096, p=2)


class Found(NamedTuple):
    """CPU seconds, and by measure the estimates of both geometries (one for a difference) with their errors."""

    seconds: float
    estimate: dict[str, np.ndarray]
    error: dict[str, np.ndarray]


def digit_rows(size: Size, rounds: int) -> Iterator[Row]:
    """Seconds to 1 % by this package, and the cost of other ways over it, round by round."""
    for target in TARGETS:
        rivals = {"NumPy, noise drawn": partial(numpy_study, size, target)}
        rivals["simstudy, plain"] = partial(own_study, size, target._replace(control="none"))
        ways = [partial(own_study, size, target), *rivals.values()]
        for way in ways:
            way(0)
        ours, *others = zip(*([way(k + 1) for way in ways] for k in range(rounds)), strict=True)
        for name in (*MEASURES, DIFFERENCE):
            known = np.mean([found.estimate[name] for found in ours], axis=0)
            own = [_seconds_needed(found, name, known) for found in ours]
            label = f"{target.name}, {name}"
            milliseconds = limits.ratio([1e3 * seconds for seconds in own], [1.0] * rounds)
            yield Row("1 % error", label, "simstudy", milliseconds, "CPU ms")
            for who, studies in zip(rivals, others, strict=True):
                factor = limits.ratio([_seconds_needed(found, name, known) for found in studies], own)
                yield Row("1 % error", label, who, factor, "times the CPU of simstudy")


def _seconds_needed(found: Found, name: str, known: np.ndarray) -> float:
    # The geometry that takes longer decides.
    return float(found.seconds * np.max(found.error[name] / (0.01 * known)) ** 2)


def cells(size: Size, target: Target) -> list[Cell]:
    """The two geometries."""
    return [
        minimal_cell(
            n_keys=size.keys, n_features=size.features, n_heads=size.heads, head_dim=size.p, arrangement="rotated",
            angle=angle, bandwidth=0.5, regression=target.regression, noise_sd=target.noise_sd, dtype=size.dtype,
            control=target.control,
            queries={"kind": "gaussian", "count": size.queries, "scale": 0.8}, batch_size=size.replicates // 4,
        )
        for angle in ANGLES
    ]  # fmt: skip


def own_study(size: Size, target: Target, number: int) -> Found:
    """Replicates of one round by this package: four batches, so that errors are known from 64 blocks."""
    made, start = cells(size, target), time.process_time()
    batches = [simulate_batch(made, 4 * number + k) for k in range(4)]
    results = [measured(cell, blocks) for blocks, cell in zip(zip(*batches, strict=True), made, strict=True)]
    first, second = (result.contribution["mse"] for result in results)
    apart = np.sqrt(np.sum((first - second) ** 2) + sum(result.remainder["squared_bias"] ** 2 for result in results))
    seconds = time.process_time() - start
    estimate = {name: np.array([result.estimate[name] for result in results]) for name in MEASURES}
    error = {name: np.array([result.mcse[name] for result in results]) for name in MEASURES}
    estimate[DIFFERENCE], error[DIFFERENCE] = np.diff(estimate["mse"]), np.array([apart])
    return Found(seconds, estimate, error)


def numpy_study(size: Size, target: Target, number: int) -> Found:
    """As many replicates by NumPy and BLAS, with the data that it draws for all geometries."""
    ways, drawn = [], numpy_drawn(size, seed=number)
    for cell in cells(size, target):
        projections, points = key_projections(cell), query_points(cell)
        arrays = Arrays(np.empty(0, size.dtype), np.empty(0), projections, points, cell.bandwidth)
        ways.append((numpy_estimates(arrays), target.values(points.T[None].copy())[0]))
    start = time.process_time()
    keys, noise = drawn()
    values = target.values(keys) + np.asarray(target.noise_sd, size.dtype) * noise
    found = [_plain_measures(compute(keys, values) - truth[:, None]) for compute, truth in ways]
    seconds = time.process_time() - start
    estimate = {name: np.array([one[name].mean() for one in found]) for name in MEASURES}
    error = {name: np.array([_standard_error(one[name]) for one in found]) for name in MEASURES}
    apart = found[1]["mse"] - found[0]["mse"]
    estimate[DIFFERENCE], error[DIFFERENCE] = np.array([apart.mean()]), np.array([_standard_error(apart)])
    return Found(seconds, estimate, error)


def _plain_measures(errors: np.ndarray) -> dict[str, np.ndarray]:
    """Contributions of the replicates, whose mean is the measure, from head errors (R, Q, H)."""
    centred = errors - errors.mean(axis=0)
    n_heads, together = errors.shape[2], centred.sum(axis=2) ** 2
    pairs = (together - (centred**2).sum(axis=2)) / (n_heads * (n_heads - 1))
    mse = (errors.mean(axis=2) ** 2).mean(axis=1)
    return {"ensemble_variance": (together / n_heads**2).mean(1), "mean_covariance": pairs.mean(1), "mse": mse}


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
