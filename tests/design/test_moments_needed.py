"""Which moments estimates have: against simulated tails; what a design says of measures that lack them."""

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes

from simstudy.design.measures import INDICES, MEASURES, STATISTICS
from simstudy.design.moments_needed import ORDER, lacking, tail
from simstudy.study import run

RADIAL = {"kind": "quadratic"}
BOTH = {"kind": "sum", "terms": ["linear", RADIAL]}


def keys(df):
    return {"kind": "student_t", "df": df}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, np.inf),
        ({"noise": keys(3.0)}, np.inf),  # integrated out
        ({"noise": keys(3.0), "noise_treatment": "drawn"}, 3.0),
        ({"noise": keys(3.0), "noise_treatment": "drawn", "noise_sd": 0.0}, np.inf),
        ({"key_distribution": keys(3.0)}, np.inf),
        ({"key_distribution": keys(3.0), "regression": "ridge"}, np.inf),
        ({"key_distribution": keys(3.0), "regression": RADIAL}, 2.5),
        ({"key_distribution": keys(3.0), "regression": BOTH}, 2.5),
        ({"key_distribution": keys(3.0), "regression": "linear"}, 5.0),
        ({"key_distribution": keys(3.0), "regression": "linear", "arrangement": "aligned"}, 120.0),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "arrangement": "aligned"}, 2.5),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "logits": "dot_product"}, 1.5),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "key_scale": "normalised"}, 1.5),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "combination": "product"}, 3.5),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "n_heads": 1, "head_dim": 6, "n_keys": 2}, 3.0),
        ({"key_distribution": keys(3.0), "noise": {"kind": "heteroscedastic"}}, 5.0),
        ({"key_distribution": keys(3.0), "regression": RADIAL, "noise": keys(2.2), "noise_treatment": "drawn"}, 2.2),
        ({"instance": {"kind": "random_heads"}}, np.inf),
    ],
    ids=str,
)
def test_tail__is_that_of_the_heaviest_part(settings, limit):
    assert tail(minimal_cell(**settings)).limit == limit


def hill(estimates, largest):
    """Tail index of the largest values (Hill 1975), and its standard error."""
    ordered = np.sort(np.abs(estimates))[::-1]
    index = 1.0 / np.log(ordered[:largest] / ordered[largest]).mean()
    return index, index / np.sqrt(largest)


@pytest.mark.parametrize(
    ("n_features", "n_keys", "logits"), [(8, 10, "distance"), (2, 2, "distance"), (8, 10, "dot_product")]
)
def test_tail__is_that_of_sampled_estimates(n_features, n_keys, logits):
    """Heads of two dimensions, |x|² under t(3) keys: local weights help, by as much as stated, and do not save it."""
    cell = minimal_cell(
        n_keys=n_keys, n_features=n_features, n_heads=1, arrangement="aligned", regression=RADIAL,
        key_distribution=keys(3.0), logits=logits,
    )  # fmt: skip
    rng = np.random.default_rng(5)
    sampled = []
    for _ in range(20):
        x = rng.standard_normal((10_000, n_keys, n_features)) / np.sqrt(rng.chisquare(3.0, (10_000, n_keys, 1)))
        z = x[..., 0] if logits == "dot_product" else -0.5 * ((x[..., :2] - [1.0, 0.0]) ** 2).sum(axis=-1)
        w = np.exp(z - z.max(axis=1, keepdims=True))
        sampled.append((w * (x**2).sum(axis=-1)).sum(axis=1) / w.sum(axis=1))
    index, error = hill(np.concatenate(sampled), 200)
    assert abs(index - tail(cell).limit) < 4 * error
    # The control: a tail twice as light.
    assert abs(index - tail(cell).limit * 2.0) > 4 * error


def test_order__is_known_of_every_measure():
    bounded = {"query_correlation", "discrepancy", "failure_rate"}
    assert set(ORDER) <= set(MEASURES) | set(STATISTICS) | set(INDICES)
    assert set(MEASURES) <= set(ORDER) and not bounded & set(ORDER)
    heavy = [minimal_cell(noise=keys(3.0), noise_treatment="drawn"), minimal_cell()]
    assert lacking(heavy, 2) == "" and "in 1 of 2 cells" in lacking(heavy, 4)


HEAVY = edited(DESIGN, "[heads]", 'key_distribution = { kind = "student_t", df = %s }\n\n[heads]')


def test_claim_on_a_measure_that_does_not_exist__is_refused(tmp_path):
    text = edited(HEAVY % 2.5, 'regression = { kind = "ridge" }', 'regression = "quadratic"')
    loaded(tmp_path, text)
    message = mistakes(tmp_path, edited(text, "bandwidth = 0.8", 'bandwidth = 0.8\nlogits = "dot_product"'))
    assert "claims.mse-falls.measure = 'mse': does not exist: that takes moments of order 2" in message
    assert "none of order 1.25 and above (a degree of 2 under keys student_t(df=2.5))" in message


def test_measure_without_an_error__is_noted_and_gets_no_verdict(tmp_path):
    text = edited(DESIGN, "[heads]", 'noise = { kind = "student_t", df = 3 }\n\n[heads]')
    assert loaded(tmp_path, text).notes == ()
    design = loaded(tmp_path, edited(text, "seed = 7", 'seed = 7\nnoise_treatment = "drawn"'))
    assert [note.partition(" = ")[0] for note in design.notes] == [
        "claims.mse-falls.measure", "grids.angles.precision",
    ]  # fmt: skip
    assert "no Monte Carlo standard error: that takes moments of order 4" in design.notes[0]
    results = run(design, output=tmp_path / "out", executor="serial")
    assert results.verdict.item() == "inconclusive" and (results.comparison_p_against == 1.0).all()
    assert "no Monte Carlo error" in results.no_verdict_because.item() and results.verdict_estimate.notnull().all()
