"""Theory of compact kernels: against sums over a grid, known constants, and the windows of the design."""

from pathlib import Path

import numpy as np
import pytest
from builders import arrays_of, minimal_cell
from theory_oracle import discrepancy

from simstudy.design.load import load_design
from simstudy.theory import compact_leading_order, empty_window_rate

DESIGN = Path(__file__).parents[2] / "designs" / "compact-kernels" / "design.toml"
COMPACT = {"kind": "compact", "power": 2, "window": 2.5}


def theory(**settings):
    cell = minimal_cell(n_keys=500, n_features=4, **{"normaliser": COMPACT} | settings)
    arrays = arrays_of(cell)
    return cell, compact_leading_order(cell, *arrays), empty_window_rate(cell, *arrays[1:])


QUADRATIC = {"kind": "quadratic", "coefficients": [0.3]}
CASES = [
    {"regression": QUADRATIC}, {"regression": QUADRATIC, "arrangement": "aligned"}, {},
    {"queries": {"kind": "points", "points": [[0.7, -0.4, 0.3]]}}, {"head_dim": 1, "regression": QUADRATIC},
    {"normaliser": {"kind": "compact", "power": 10, "window": 5.0}, "regression": QUADRATIC},
]  # fmt: skip


@pytest.mark.parametrize("settings", CASES)
def test_expansion__is_that_of_a_grid_of_keys(settings):
    cell, prediction, _ = theory(**settings)
    assert prediction.reason == ""
    assert discrepancy(prediction, cell, *arrays_of(cell), extent=5.1, step=0.3) < 1e-3


def test_windows_that_do_not_meet__have_covariance_zero_in_theory():
    apart = {"arrangement": "aligned", "query_projections": "opposite", "head_dim": 1}
    points = {"kind": "points", "points": [[1.0]]}
    narrow = {"normaliser": {"kind": "compact", "power": 1, "window": 1.2}}
    _, prediction, _ = theory(queries=points, **apart, **narrow)
    assert prediction.covariance[0, 0, 1] == 0.0 < prediction.covariance[0, 0, 0]
    _, overlapping, _ = theory(queries=points, **apart)
    assert "overlap in part" in overlapping.reason and np.isnan(overlapping.covariance).all()


def test_empty_window_rate__is_the_share_of_samples_without_a_key():
    settings = {"kind": "compact", "power": 3, "window": 1.0}
    cell, _, (rate, reason) = theory(normaliser=settings, n_heads=1, queries={"kind": "points", "points": [[1.5, 0.5]]})
    cell = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": 6})})
    rate, reason = empty_window_rate(cell, *arrays_of(cell)[1:])
    keys = np.random.default_rng(2).standard_normal((50_000, 6, 2))
    empty = (((keys - [1.5, 0.5]) ** 2).sum(axis=2) >= 0.8**2).all(axis=1)
    error = np.sqrt(rate * (1 - rate) / len(empty))
    assert not reason and 0.1 < rate < 0.9
    assert abs(empty.mean() - rate) < 4 * error < abs(empty.mean() - 1.1 * rate)
    relu = cell.model_copy(update={"estimator": minimal_cell(normaliser={"kind": "relu", "threshold": -0.5}).estimator})
    assert empty_window_rate(relu, *arrays_of(relu)[1:])[0] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"normaliser": {"kind": "entmax", "power": 2}}, "fixed bandwidth"),
        ({"normaliser": {"kind": "top_k", "k": 9}}, "fixed bandwidth"),
        ({"regression": "linear"}, "m = c|x|²"),
        ({"arrangement": "haar"}, "aligned or orthogonal"),
        ({"key_distribution": "sphere"}, "standard normal"),
        ({"normaliser": {"kind": "compact", "power": 1, "window": 0.3}}, "effective sample size"),
    ],
)
def test_where_theory_does_not_apply__it_says_why(settings, word):
    _, prediction, _ = theory(**settings)
    assert word in prediction.reason and np.isnan(prediction.bias).all()
    _, _, (rate, reason) = theory(n_heads=2, queries={"kind": "gaussian", "count": 2})
    assert np.isnan(rate) and "one window" in reason


def test_windows_of_the_design__give_kernels_one_effective_sample_size():
    sizes = {}
    for planned in load_design(DESIGN).cells:
        if planned.grid == "equal-size" and not planned.cell.estimator.plain:
            cell = minimal_cell(n_keys=1024, n_features=4, noise_sd=1.0, bandwidth=0.5, regression="zero",
                                queries="origin", normaliser=planned.cell.estimator.normaliser)  # fmt: skip
            arrays = arrays_of(cell)
            sizes[cell.estimator.normaliser.power] = 1 / compact_leading_order(cell, *arrays).covariance[0, 0, 0]
    assert list(sizes) == [1, 2, 3, 10, 100]
    np.testing.assert_allclose(list(sizes.values()), 0.36 * 1024, rtol=1e-5)
