"""A few configurations of ``make verify``, so that the ordinary test suite notices when it breaks."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from builders import with_contents
from scipy import stats
from small_studies import LEVEL, Setting, claim, false_on_events, rates
from zscores import Configuration, configuration, exact, judge, leading, noise_only, simulated, z_score

VERIFICATIONS = sorted(Path(__file__).parent.glob("verify_*.py"))

# With noise integrated out, so that fewer kernels are compiled.
NUMBERS = (1, 3, 14, 15, 16, 19)


@pytest.mark.parametrize("path", VERIFICATIONS, ids=lambda path: path.stem)
def test_verification__can_be_collected(path):
    loaded = vars(importlib.import_module(path.stem))
    assert any(name.startswith("test_") for name in loaded)


@pytest.fixture(scope="module")
def runs():
    chosen = [configuration(number)._replace(n_batches=4) for number in NUMBERS]
    return [(one, simulated(one)) for one in chosen]


def test_exact_moments_agree_with_simulation(runs):
    z = [z_score(measured, exact(chosen)) for chosen, measured in runs]
    assert np.abs(z).max() < stats.norm.isf(0.01 / (2 * len(z)))


UNEVEN = {"noise": {"kind": "heteroscedastic", "strength": 2.0}}
ROWS = {
    "n_features": 10, "arrangement": "haar", "queries": {"kind": "held_out", "count": 2}, "batch_size": 2048,
    "key_distribution": {"kind": "file", "path": "sklearn:diabetes", "response": "target", "held_out": 8},
}  # fmt: skip
OUTCOMES = [
    UNEVEN | {"regression": "file", "noise_treatment": "drawn", "logits": "dot_product", "bandwidth": 1.2},
    UNEVEN | {"regression": {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -1.0, 0.5]}, "bandwidth": 0.6},
    {"regression": {"kind": "fitted", "learner": "linear"}, "noise": "residuals", "noise_treatment": "drawn"},
    {"regression": {"kind": "fitted"}, "noise": {"kind": "residuals", "paired": True}, "noise_treatment": "drawn"},
]


@pytest.mark.parametrize("outcomes", OUTCOMES)
def test_exact_moments_over_rows_agree_with_simulation(outcomes):
    chosen = Configuration(0, with_contents(n_keys=5, **ROWS, **outcomes), "covariance", n_batches=4)
    measured = simulated(chosen)
    assert abs(z_score(measured, exact(chosen))) < 4.0
    assert abs(z_score(measured, noise_only(chosen))) > 6.0


@pytest.mark.parametrize(("wrong", "number"), [(leading, 3), (noise_only, 1)])
def test_a_wrong_theory_is_caught(runs, wrong, number):
    chosen, measured = runs[NUMBERS.index(number)]
    assert abs(z_score(measured, wrong(chosen))) > stats.norm.isf(0.0005)


@pytest.mark.parametrize(("name", "truth", "law"), [("tie", [0.0] * 4, "normal"), ("skewed", [0.0] * 2, "exponential")])
def test_false_verdicts__are_rare_in_a_sample_of_small_studies(name, truth, law):
    stated = claim(kind="optimum", x="x", value=1.0)
    tied = Setting(name, stated, [{"x": float(k + 1)} for k in range(len(truth))], truth, law=law)
    found = rates(tied, 100, 1.0, looks=(64, 128))
    assert found.at_most_the_level(found.contradicted) and found.at_most_the_level(found.left)
    clear = rates(tied._replace(truth=[-12.0, *truth[1:]]), 20)
    assert clear.supported > 0.4 and clear.contradicted == 0.0  # the control


@pytest.mark.parametrize(("share", "n_blocks"), [(0.01, 64), (0.1, 64), (0.003, 1024)])
def test_rare_events__are_not_declared_rarer_than_they_are(share, n_blocks):
    """`verify_verdicts` has more shares, and several looks; blocks that are alike by construction are the control."""
    assert false_on_events("coverage", share, n_blocks, "contradicted") <= LEVEL
    assert false_on_events("coverage", share, n_blocks, "supported") <= LEVEL
    no_event = (1.0 - share) ** n_blocks
    assert false_on_events("mse", share, n_blocks, "contradicted") >= 0.99 * no_event


def test_verdict_is_strict_but_accepts_normal_scores():
    z = stats.norm.ppf((np.arange(250) + 0.5) / 250)
    assert judge(z) == []
    assert judge(z + 0.5)
    assert judge(1.3 * z)
    assert "largest |z|" in judge(np.append(z, 5.0))
