"""Theory as a control variate over query points: no bias, smaller errors, and the slopes of a naive loop."""

import numpy as np
import pytest
from builders import estimated, minimal_cell, planned

from simstudy.design.settings.cell import Cell
from simstudy.replicates.performance import Performance
from simstudy.verdicts import query_control
from simstudy.verdicts.query_control import CONTROLLED, N_RANDOMISATIONS, QueryControl, _slopes, applies, controlled_by

N_DRAWS = 24


def random_points(**settings) -> Cell:
    settings = {"regression": {"kind": "ridge"}, "batch_size": 16, "population": ["queries"]} | settings
    return minimal_cell(**{"queries": {"kind": "gaussian", "count": 4}} | settings)


def gain(plain, controlled):
    return {name: (plain.mcse[name] / controlled.mcse[name]) ** 2 for name in CONTROLLED}


def test_controlled_estimates__agree_with_many_draws_and_vary_less():
    cell = random_points()
    few, many = estimated(cell, N_DRAWS), estimated(random_points(seed=8), 400)
    controlled = QueryControl()(cell, few)
    for name in CONTROLLED:
        apart = controlled.estimate[name] - many.estimate[name]
        assert abs(apart) < 4 * np.hypot(controlled.mcse[name], many.mcse[name]), name
        error = np.hypot(np.linalg.norm(controlled.contribution[name]), controlled.remainder[name])
        assert controlled.mcse[name] == pytest.approx(error)
    assert gain(few, controlled)["mse"] > 5
    # Functions of averages are left as they are.
    assert controlled.estimate["effective_heads"] == few.estimate["effective_heads"]
    looked = QueryControl()
    looked(cell, estimated(cell, 10))  # further looks have the bits of a single one
    assert all(looked(cell, few).mcse[name] == controlled.mcse[name] for name in CONTROLLED)


@pytest.mark.parametrize(("bandwidth", "scale"), [(0.8, 1.0), (0.5, 3.0)])
def test_theory_without_a_mean__is_cut_to_what_estimates_can_be(bandwidth, scale):
    """With dot products the expansion grows like exp(|q|²) and faster: averages over queries would not exist."""
    queries = {"kind": "gaussian", "count": 4, "scale": scale}
    cell = random_points(logits="dot_product", bandwidth=bandwidth, queries=queries)
    few = estimated(cell, N_DRAWS)
    controlled = QueryControl()(cell, few)
    for name in CONTROLLED:
        assert abs(controlled.estimate[name] - few.estimate[name]) < 4 * few.mcse[name], name
        assert 0 < controlled.mcse[name] < 1.5 * few.mcse[name], name


def test_slopes__leave_each_pair_out():
    rng = np.random.default_rng(1)
    x = rng.normal(size=9)
    y = 2 * x + rng.normal(size=9)
    for variance in (0.0, 0.05):
        naive = []
        for one, other in ((np.delete(x, k), np.delete(y, k)) for k in range(9)):
            gaps = one - one.mean()
            naive.append(gaps @ other / (gaps @ gaps + 9 * 8 * variance))
        np.testing.assert_allclose(_slopes(y, x, variance), naive, rtol=1e-10)
    assert not _slopes(y, np.full(9, 0.3), 0.0).any()


def test_theory_whose_mean_is_hardly_known__does_no_harm(monkeypatch):
    """With a full slope the error of this mean would be that of the measure, however many replicates there are."""
    monkeypatch.setattr(query_control, "LOG2_FEWEST", 1)
    monkeypatch.setattr(query_control, "LOG2_MOST", 1)
    cell = random_points()
    whole = estimated(cell, 96)
    found = gain(whole, QueryControl()(cell, whole))
    assert min(found.values()) > 0.95 and found["mse"] > 1.05


def test_error_of_the_expectation__is_how_estimates_move_with_what_is_taken_for_it():
    """Draws of measure and theory stay, the mean of theory is estimated anew 400 times from 8 randomisations."""
    rng = np.random.default_rng(6)
    theory = rng.normal(size=64)
    share = (theory + 0.5 * rng.normal(size=64)) / 64
    share -= share.mean()
    names = ("estimate", "mcse", "contribution", "remainder", "widening")
    values = (1.0, np.linalg.norm(share), share, 0.0, 1.0)
    plain = Performance(**{field: dict.fromkeys(CONTROLLED, each) for field, each in zip(names, values, strict=True)},
                        n_blocks=64, n_replicates=64, n_failed=0)  # fmt: skip
    drawn = dict.fromkeys(CONTROLLED, theory)
    means = (0.2 * rng.normal(size=N_RANDOMISATIONS) for _ in range(400))
    found = [controlled_by(plain, drawn, dict.fromkeys(CONTROLLED, each))[0] for each in means]
    told = np.sqrt(np.mean([each.remainder["mse"] ** 2 for each in found]))
    assert np.std([each.estimate["mse"] for each in found]) / told == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(
    "settings",
    [
        {"population": []},
        {"regression": {"kind": "zero"}},
        {"arrangement": "haar", "population": ["queries", "heads"]},
        {"combination": {"kind": "optimal"}},
        {"key_distribution": {"kind": "sphere"}},
        {"normaliser": {"kind": "sparsemax"}},
    ],
)
def test_other_cells__are_left_as_they_are(settings):
    cell = random_points(**settings)
    performance = estimated(cell, 4)
    assert not applies(cell) and QueryControl()(cell, performance) is performance


def test_cells_of_one_grid__are_controlled_together_or_not_at_all():
    """Additive functions on 16 heads take too long: the cells of one head beside them are left alone as well."""
    additive = {"regression": {"kind": "additive"}, "n_features": 16, "head_dim": 1, "arrangement": "orthogonal"}
    one, many = (random_points(**additive, n_heads=n_heads) for n_heads in (1, 16))
    performance = estimated(one, 4)
    assert QueryControl()(one, performance) is not performance
    assert QueryControl([planned(one), planned(many)])(one, performance) is performance
    assert QueryControl([planned(one), planned(many, "other")])(one, performance) is not performance
