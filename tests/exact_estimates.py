"""Estimates whose errors are known to the last digit: independent, alike, and without skewness."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from simstudy.design.document import Claim
from simstudy.verdicts.estimates import Estimates, estimates_of
from simstudy.verdicts.evidence import Contrast

Array = NDArray[np.float64]

N_BLOCKS = 64


def account(
    coordinates: dict[str, Any], value: Any, contribution: Array, *, measure: str = "mse", remainder: float = 0.0,
    n_blocks: int | None = None, n_replicates: int = 0, by_batch: bool = False, seed: int = 1, batch_size: int = 256,
    randomisation: Any = (),
) -> Any:  # fmt: skip
    """Return an account of one cell; of several measures, value and contribution are dicts."""
    values, parts = (each if isinstance(each, dict) else {measure: each} for each in (value, contribution))
    performance = SimpleNamespace(
        estimate=values, contribution=parts, remainder={measure: remainder},
        randomisation={measure: randomisation}, n_replicates=n_replicates, n_blocks=n_blocks or len(parts[measure]),
        by_batch=by_batch, block_length=16 if by_batch else 1,
        mcse={name: np.hypot(np.linalg.norm(part), remainder) for name, part in parts.items()},
    )  # fmt: skip
    # An instance has no data whose moments might not exist.
    simulation = SimpleNamespace(seed=seed)
    cell = SimpleNamespace(coordinates=coordinates, simulation=simulation, functions="any", population=())
    planned = SimpleNamespace(cell=cell, grid="g", counted=frozenset({"coverage", "visible_rank"}))
    return SimpleNamespace(planned=planned, performance=performance, batch_size=batch_size, done=4)


def averaged(coordinates: dict[str, Any], replicates: Array, **settings: Any) -> Any:
    """Return an account whose measure is the mean of one number for each block."""
    mean, n = replicates.mean(), len(replicates)
    return account(coordinates, mean, (replicates - mean) / np.sqrt(n * (n - 1)), **settings)


def claim(**entries: Any) -> Any:
    """Return a claim on the mean squared error, unless it states another measure."""
    return TypeAdapter(Claim).validate_python({"statement": "s", "grid": "g", "measure": "mse"} | entries, strict=True)


def exact_accounts(levels: Sequence[dict[str, Any]], values: Sequence[float], error: Any) -> list[Any]:
    """Return accounts with orthogonal contributions: each comes with its negative, so that no sum is skewed.

    The error is one for all cells, or one for each.
    """
    half = np.linalg.qr(np.random.default_rng(0).normal(size=(N_BLOCKS // 2, N_BLOCKS // 2)))[0]
    columns = np.concatenate([half, -half]).T[: len(levels)] * np.reshape(error, (-1, 1)) / np.sqrt(2.0)
    return [account(*each) for each in zip(levels, values, columns, strict=True)]


def exact_estimates(levels: Sequence[dict[str, Any]], values: Sequence[float], error: Any) -> Estimates:
    return estimates_of(exact_accounts(levels, values, error), "mse")


def derived(function: Callable[[Array], float], values: Sequence[float], error: Any) -> Contrast:
    """Return a function of such estimates with the error that numerical derivatives give."""
    at, steps = np.array(values, float), 1e-6 * np.eye(len(values))
    gradient = [(function(at + step) - function(at - step)) / 2e-6 for step in steps]
    return Contrast(function(at), np.linalg.norm(error * np.array(gradient)), N_BLOCKS, N_BLOCKS - 1, 0.0, 0.0)
