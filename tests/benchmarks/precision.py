"""Processor seconds to a relative Monte Carlo error of 1 % and 1e-4: ``python tests/benchmarks/precision.py``.

By control by expansion, by plain replicates, and by NumPy in single precision with the
noise integrated out.  NumPy has the errors of plain replicates, so only its time is its own.  Known means are part of
the times of expansions.
"""

import itertools
import os
import sys
from functools import partial
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

import numpy as np  # noqa: E402
from builders import estimated, minimal_cell  # noqa: E402
from limits import Row, interleaved  # noqa: E402
from recorded import PROCESSOR  # noqa: E402

from simstudy.attention.expansion import _left_out, expectations, known_of  # noqa: E402
from simstudy.data.heads import key_projections, query_points  # noqa: E402
from simstudy.replicates.batch import simulate_batch  # noqa: E402

MEASURES = ("mse", "ensemble_variance", "mean_covariance", "correlation")
WANTED = {1e-2: "1&nbsp;%", 1e-4: "1e-4"}
BATCH, BATCHES, ROUNDS = 256, 4, 5
WAYS, LEAST = ("expansion", "none"), 64
"""Controls, and the fewest replicates."""
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
    kind = settings["regression"]
    if kind == "zero":
        return np.zeros_like(x[..., 0, :])
    return 2 * np.sin(x[..., 0, :]) if kind["kind"] == "ridge" else 0.25 * (x**2).sum(axis=-2)


def rival(cell, settings, count, rng):
    """Sums over replicates of errors of heads (Q, H) and of their products with noise integrated (Q, H, H)."""
    points, projections = query_points(cell).astype(np.float32), key_projections(cell).astype(np.float32)
    truth, images = target(settings, points.T), points @ projections / np.float32(cell.bandwidth)
    errors = products = 0.0
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
        errors = errors + error.sum(axis=0)
        products = products + (gram + error[..., None] * error[..., None, :]).sum(axis=0)
    return errors, products


def rows(name, settings):
    """Lines of the table for one cell, one for each error wanted: seconds by measure, of the three ways."""
    ways = {way: minimal_cell(**settings, batch_size=BATCH, control=way) for way in WAYS}
    found = {way: estimated(each, BATCHES) for way, each in ways.items()}
    plain, rng = ways["none"], np.random.default_rng(0)
    products = rival(plain, settings, BATCH, rng)[1] / BATCH
    mse, known = products.mean(), found["none"]
    assert abs(mse - known.estimate["mse"]) < 5 * known.mcse["mse"] * np.sqrt(1 + BATCHES), "the rival errs"
    jobs = [partial(simulate_batch, [each], 0) for each in ways.values()]
    jobs += [partial(expectations, ways["expansion"]), partial(rival, plain, settings, BATCH, rng)]
    *times, of_means, of_rival = (float(np.median(each)) for each in interleaved(jobs, ROUNDS))
    columns = [*zip(WAYS, times, (of_means, 0.0), strict=True), ("none", of_rival, 0.0)]
    for wanted, label in WANTED.items():
        cells = []
        for measure in MEASURES:
            seconds = []
            for way, taken, fixed in columns:
                error = found[way].mcse[measure] / abs(found[way].estimate[measure])
                needed = max(LEAST, BATCH * BATCHES * (error / wanted) ** 2)
                seconds.append(f"{float(f'{fixed + taken * needed / BATCH:.2g}'):g}")
            cells.append("/".join(seconds))
        yield f"| {name} | {label} | {' | '.join(cells)} |"
        name = ""


def control_rows():
    """Seconds of plain replicates over those of the control that leaves one key out, by cell, measure and error."""
    base = {"n_features": 512, "n_heads": 8, "head_dim": 64, "arrangement": "orthogonal", "logits": "dot_product"}
    for (scale, n_keys), regression in itertools.product(ATTENTION, ("zero", RIDGE["regression"])):
        queries = {"kind": "gaussian", "count": 16, "scale": scale}
        settings = base | {"bandwidth": "attention", "n_keys": n_keys, "queries": queries, "regression": regression}
        ways = [minimal_cell(**settings, dtype="float32", batch_size=64, control=way) for way in WAYS]
        found = [estimated(each, 4) for each in ways]
        jobs = [partial(simulate_batch, [each], 0) for each in ways] + [partial(_left_out.__wrapped__, ways[0])]
        *times, fixed = (float(np.median(each)) / 64 for each in interleaved(jobs, 3))
        of_logits, target = 2.0 * known_of(ways[0]).log_mass, "noise alone" if regression == "zero" else "2 sin x₁"
        size = f"{n_keys} keys, variance of logits {of_logits.min():.1f} to {of_logits.max():.1f}, {target}"
        for measure, wanted in itertools.product(("ensemble_variance", "mse"), (1e-2, 1e-3)):
            needed = [max(LEAST, 256 * (each.mcse[measure] / each.estimate[measure] / wanted) ** 2) for each in found]
            gain = times[1] * needed[1] / (times[0] * needed[0] + 64 * fixed)
            yield Row("control", size, f"{measure} to {wanted:.1%}", gain, "times plain replicates")


if __name__ == "__main__":
    print(f"Processor: {PROCESSOR}\n\n| cell | to | {' | '.join(f'`{name}`' for name in MEASURES)} |")
    print("|---" * (2 + len(MEASURES)) + "|")
    for cell_name, cell_settings in CELLS.items():
        print("\n".join(rows(cell_name, cell_settings)), flush=True)
