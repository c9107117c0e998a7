"""Do 95 % intervals hold the truth where tails are heavy?

The truth is the mean of all studies, whose error is a twentieth of that of one.  From 64 blocks of one replicate,
± 1.96 printed errors must cover in 93 of 100 studies of thirteen hard cells.
"""

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.intervals import COVERAGE
from simstudy.replicates.population import measured
from simstudy.verdicts.comparisons import paired
from simstudy.verdicts.estimates import estimates_from

pytestmark = pytest.mark.rare

N_STUDIES, N_BATCHES = 400, 4
T4, T5 = ({"kind": "student_t", "df": df} for df in (4, 5))
NOISE = {"noise": T5, "noise_treatment": "drawn"}
HARD = {
    "dot products, 64 t(4) keys": {"key_distribution": T4},
    "dot products, 10 t(4) keys": {"key_distribution": T4, "n_keys": 10},
    "dot products, 64 keys": {},
    "dot products, 10 keys": {"n_keys": 10},
    "narrow, 64 t(4) keys": {"key_distribution": T4, "bandwidth": 0.5},
    "distances, 64 t(4) keys": {"key_distribution": T4, "logits": "distance"},
    "distances, 10 t(4) keys": {"key_distribution": T4, "logits": "distance", "n_keys": 10},
    "distances, 10 keys": {"logits": "distance", "n_keys": 10},
    "t(5) noise, 64 t(4) keys": {"key_distribution": T4, **NOISE},
    "t(5) noise, 10 t(4) keys": {"key_distribution": T4, "n_keys": 10, **NOISE},
    "t(5) noise, distances": {"key_distribution": T4, "logits": "distance", **NOISE},
    "t(5) noise, 10 keys": {"n_keys": 10, **NOISE},
    "four heads, 64 t(4) keys": {"key_distribution": T4, "n_heads": 4, "head_dim": 1},
}
BASE = {
    "batch_size": 16, "control": "none", "n_features": 4, "n_heads": 2, "head_dim": 2, "arrangement": "rotated",
    "regression": {"kind": "ridge"}, "bandwidth": 1.0, "queries": {"kind": "gaussian", "count": 4}, "n_keys": 64,
    "logits": "dot_product",
}  # fmt: skip


def estimates_and_errors(settings: dict) -> dict[str, np.ndarray]:
    """Estimates and printed errors (study, 2) of measures of a cell, and of what two cells differ in."""
    pair = [minimal_cell(**BASE | settings, angle=angle) for angle in (20, 80)]
    found: dict[str, list] = {}
    for study in range(N_STUDIES):
        batches = [simulate_batch(pair, N_BATCHES * study + batch) for batch in range(N_BATCHES)]
        both = [measured(cell, [moments[i] for moments in batches]) for i, cell in enumerate(pair)]
        for name in ("mse", "squared_bias", "ensemble_variance", "correlation"):
            found.setdefault(name, []).append((float(both[0].estimate[name]), float(both[0].printed(name))))
        estimates = estimates_from([{}, {}], [(0, 16)] * 2, both, "ensemble_variance")
        for name in ("difference", "ratio"):
            contrast, _ = paired(estimates, 0, 1, name)
            found.setdefault(name, []).append((float(contrast.value), float(contrast.mcse * contrast.widening)))
    return {name: np.array(each) for name, each in found.items()}


@pytest.mark.parametrize("name", HARD)
def test_printed_errors__cover(name):
    found = estimates_and_errors(HARD[name])
    shares = {
        measure: float((np.abs(each[:, 0] - each[:, 0].mean()) <= COVERAGE * each[:, 1]).mean())
        for measure, each in found.items()
    }
    print(f"{name}: " + ", ".join(f"{measure} {share:.3f}" for measure, share in shares.items()))
    assert min(shares.values()) >= 0.93
