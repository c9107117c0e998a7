"""Processor time to a relative Monte Carlo error by control variates, by plain replicates, and by NumPy.

NumPy computes in single precision with the noise integrated out, and has the errors of plain replicates.  Known means
are part of the times of controls.
"""

import itertools
from functools import partial

import numpy as np
from builders import estimated, left_open, minimal_cell
from limits import Row, interleaved, ratio

from simstudy.attention.expansion import _left_out, expectations, known_of
from simstudy.data.heads import key_projections, query_points
from simstudy.replicates.allocation import quickest
from simstudy.replicates.batch import simulate_batch

MEASURES, WANTED = ("mse", "ensemble_variance"), (1e-2, 1e-3)
BATCH, BATCHES, ROUNDS = 256, 4, 5
WAYS, LEAST = ("expansion", "none"), 1024
"""Controls, and the fewest replicates: those of a run by default."""
NOISE, RIDGE = {"regression": "zero", "queries": "origin"}, {"regression": {"kind": "ridge", "amplitude": 2.0}}
QUADRATIC = {"regression": {"kind": "quadratic", "coefficients": [0.25]}}
QUERIES = {"queries": {"kind": "gaussian", "count": 16, "scale": 0.5}}
ROTATED = {"n_features": 8, "arrangement": "rotated", "head_dim": 2, "bandwidth": 0.5}
ATTENTION = ((1.0, 128), (1.0, 1024), (1.414, 1024), (2.0, 1024))
"""Scale of queries and keys of cells with 8 heads of 64 dimensions and 16 queries."""
CELLS = {
    "noise, 4096 keys, 2 heads at 45°": {**NOISE, **ROTATED, "n_keys": 4096, "angle": 45.0},
    "noise, 100 keys, 2 heads at 60°": {**NOISE, **ROTATED, "n_keys": 100, "n_features": 4, "angle": 60.0},
    "2 sin x₁, 1024 keys, 2 heads at 60°": {**RIDGE, **QUERIES, **ROTATED, "n_keys": 1024, "angle": 60.0},
    "quadratic, 400 keys, 2 heads at 60°": {**QUADRATIC, **QUERIES, **ROTATED, "n_keys": 400, "angle": 60.0},
}  # fmt: skip


def target(settings, x):
    """The regression function at x (..., feature, point)."""
    if settings["regression"] == "zero":
        return np.zeros_like(x[..., 0, :])
    return 2 * np.sin(x[..., 0, :]) if settings["regression"]["kind"] == "ridge" else 0.25 * (x**2).sum(axis=-2)


def rival(cell, settings, count, rng):
    """Sums over replicates of products of errors of heads with noise integrated (Q, H, H)."""
    points, projections = query_points(cell).astype(np.float32), key_projections(cell).astype(np.float32)
    truth, images = target(settings, points.T), points @ projections / np.float32(cell.bandwidth)
    products = 0.0
    for size in [8] * (count // 8):
        keys = rng.standard_normal((size, cell.data.n_features, cell.data.n_keys), dtype=np.float32)
        projected = projections.mT @ keys[:, None] / np.float32(cell.bandwidth)
        weights = images @ projected
        weights -= 0.5 * (projected**2).sum(axis=2, keepdims=True) + 0.5 * (images**2).sum(axis=2, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=3, keepdims=True)
        error = (weights @ target(settings, keys)[:, None, :, None])[..., 0].swapaxes(1, 2) - truth[:, None]
        by_query = weights.swapaxes(1, 2)
        gram = cell.data.noise_sd**2 * (by_query @ by_query.mT)
        products = products + (gram + error[..., None] * error[..., None, :]).sum(axis=0)
    return products


def expansion_rows(cells=CELLS):
    """Seconds of NumPy over those of the control by expansion, by cell, measure and error."""
    for name, settings in cells.items():
        expanded, plain = (minimal_cell(**settings, batch_size=BATCH, control=way) for way in WAYS)
        found, rng = [estimated(each, BATCHES) for each in (expanded, plain)], np.random.default_rng(0)
        gap = rival(plain, settings, BATCH, rng).mean() / BATCH - found[1].estimate["mse"]
        assert abs(gap) < 5 * found[1].mcse["mse"] * np.sqrt(1 + BATCHES), "the rival errs"
        jobs = [partial(simulate_batch, [expanded], 0), partial(rival, plain, settings, BATCH, rng)]
        *times, of_means = map(np.array, interleaved([*jobs, partial(expectations, expanded)], ROUNDS))
        for measure, wanted in itertools.product(MEASURES, WANTED):
            ours, numpy = (t * _needed(e, BATCHES * BATCH, measure, wanted) for t, e in zip(times, found, strict=True))
            who = f"NumPy, {measure} to {wanted:.1%}"
            yield Row("expansion", name, who, ratio(numpy, ours + of_means), "times simstudy")


def _needed(found, replicates, measure, wanted):
    """Batches until a measure has the error wanted."""
    return max(LEAST, replicates * (found.mcse[measure] / found.estimate[measure] / wanted) ** 2) / BATCH


def control_rows():
    """Seconds of plain replicates over those of the way that a run takes, with its pilot."""
    base = {"n_features": 512, "n_heads": 8, "head_dim": 64, "arrangement": "orthogonal", "logits": "dot_product"}
    for (scale, n_keys), regression in itertools.product(ATTENTION, ("zero", RIDGE["regression"])):
        queries = {"kind": "gaussian", "count": 16, "scale": scale}
        settings = base | {"bandwidth": "attention", "n_keys": n_keys, "queries": queries, "regression": regression}
        ways = [minimal_cell(**settings, dtype="float32", batch_size=BATCH, control=way) for way in WAYS]
        found = [estimated(each, 2) for each in ways]
        cell = minimal_cell(**settings, dtype="float32", control="expansion")
        grids = {one: left_open(cell, relative_mcse=dict([one])) for one in itertools.product(MEASURES, WANTED)}
        jobs = [partial(simulate_batch, [each], 0) for each in ways]
        jobs += [partial(_left_out.__wrapped__, ways[0]), partial(quickest, grids["mse", 1e-2], False)]
        *times, fixed, pilot = (float(np.median(each)) for each in interleaved(jobs, 3))
        of_logits, target = 2.0 * known_of(ways[0]).log_mass, "noise alone" if regression == "zero" else "2 sin x₁"
        size = f"{n_keys} keys, variance of logits {of_logits.min():.1f} to {of_logits.max():.1f}, {target}"
        for (measure, wanted), grid in grids.items():
            seconds = [t * _needed(each, 2 * BATCH, measure, wanted) for t, each in zip(times, found, strict=True)]
            seconds[0] += fixed
            taken = pilot + seconds["control" in quickest(grid, False)]
            yield Row("control", size, f"{measure} to {wanted:.1%}", seconds[1] / taken, "times plain replicates")
