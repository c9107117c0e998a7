"""Known means without closed forms: nets against closed forms and exact sums, and the error that they leave."""

import itertools

import numpy as np
import pytest
from builders import DESIGN, edited, minimal_cell, with_contents, write_design

from simstudy.attention import expansion, nets
from simstudy.attention.combinations import combine_heads
from simstudy.design.load import load_design
from simstudy.design.settings.code import Code
from simstudy.replicates import moments
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import EXPANSION, stack, variance_over_nets
from simstudy.replicates.performance import performance
from simstudy.replicates.population import measured

STUDENT = {"kind": "student_t", "df": 5}
SPHERE = {"kind": "sphere", "radius": 1.7}
INFINITE = "import numpy as np\ndef m(x):\n    return np.where(abs(x[0]) < 1e-4, np.inf, x[0])"
CODE = Code("def keys(z):\n    return z * abs(z[0]) ** 0.5\ndef m(x):\n    return abs(x[0])", "own.py", trusted=True)
OWN = {"kind": "own", "path": "own.py", "name": "keys", "code": CODE}
RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, 0.5]}
POINTS = {"kind": "points", "points": [[0.4, -0.3], [-0.6, 0.8]]}


BASE = {"n_features": 3, "n_keys": 200, "bandwidth": 0.7, "head_dim": 1, "arrangement": "rotated", "angle": 60.0,
        "queries": POINTS, "regression": RIDGE, "control": "expansion", "noise_sd": 0.8}  # fmt: skip


def cell_of(**settings):
    return minimal_cell(**BASE | settings)


@pytest.mark.parametrize("settings", [{}, {"regression": "quadratic", "logits": "dot_product", "bandwidth": 2.0}])
def test_nets__give_what_closed_forms_give(settings):
    """Within a few standard errors of nets: a wrong product, power or weight would show."""
    cell = cell_of(**settings)
    known, by_nets = expansion.expectations(cell), nets.one_key(cell)
    parts = [expansion._averaged(by_nets._replace(**{
        name: getattr(by_nets, name)[half::8] for name in by_nets._fields[2:]})) for half in range(8)]  # fmt: skip
    for closed, found in zip(known[:-1], zip(*(part[:-1] for part in parts), strict=True), strict=True):
        error = np.std(found, axis=0, ddof=1) / np.sqrt(8) + 1e-12
        assert np.abs((np.mean(found, axis=0) - closed) / error).max() < 8
        np.testing.assert_allclose(np.mean(found, axis=0), closed, rtol=0.005, atol=2e-4)


def mean_of_control(cell, x, m):
    """Mean of the control over all data sets of rows x (d, N), with outcomes m (N,), each as likely as any other."""
    projections = np.eye(3)[:2, :, None]
    points = np.pad(np.array(POINTS["points"]), ((0, 0), (0, 1)))
    gaps = (points @ projections)[..., 0].T[:, :, None] - (projections.swapaxes(1, 2) @ x)[:, 0]
    kernels = np.exp(-0.5 * (gaps / cell.bandwidth) ** 2)
    sets = np.array(list(itertools.product(range(x.shape[1]), repeat=cell.data.n_keys)))
    chosen = np.moveaxis(kernels[..., sets], 2, 0)
    mass = chosen.sum(axis=-1)
    weights = chosen / mass[..., None]
    means = (weights * m[sets][:, None, None]).sum(axis=-1)
    gram = cell.data.noise_sd**2 * weights @ weights.swapaxes(-1, -2)
    return expansion.expansion(cell, means, gram, np.log(mass)).mean(axis=0)


def few_points(monkeypatch, *points):
    """A cell of three keys whose nets are given: points x (feature, point) and outcomes (point,) of each."""
    monkeypatch.setattr(nets, "_nets", lambda _: iter(points))
    expansion.known_of.cache_clear()
    return cell_of(n_keys=3, bandwidth=1.8, arrangement="orthogonal", angle=None, key_distribution=STUDENT)


@pytest.fixture(autouse=True)
def _forget():
    yield
    expansion.known_of.cache_clear()


def test_control__averages_to_0_over_all_data_sets_of_rows(monkeypatch):
    rng = np.random.default_rng(2)
    x, m = rng.standard_normal((3, 5)), rng.standard_normal(5)
    cell = few_points(monkeypatch, (x, m))
    found = mean_of_control(cell, x, m)
    assert expansion.known_of(cell).deviations is None
    np.testing.assert_allclose(found, 0.0, atol=1e-13)
    # Negative control: other rows.
    assert np.abs(mean_of_control(cell, x + 0.1, m)).max() > 1e-3


def test_deviations__are_the_means_of_the_control_under_the_law_of_each_net(monkeypatch):
    """A term or a factor that is lacking in the error of known means would show."""
    rng, size = np.random.default_rng(3), 1e-5
    x, m = rng.standard_normal((3, 5)), rng.standard_normal(5)
    points = [(x + size * rng.standard_normal(x.shape), m + size * rng.standard_normal(5)) for _ in range(3)]
    cell = few_points(monkeypatch, *points)
    expected = expansion.known_of(cell).deviations
    assert np.abs(expected).min() > 1e-8
    found = np.array([mean_of_control(cell, *net) for net in points])
    np.testing.assert_allclose(found, expected, atol=1e-9)


def batches_of(cell, n_batches=4):
    return [simulate_batch([cell], batch)[0] for batch in range(n_batches)]


def rows_of_data(**settings):
    keys = {"kind": "file", "path": "sklearn:diabetes", "response": "target", "held_out": 12}
    settings |= {"regression": {"kind": "fitted", "learner": "linear"}, "n_features": 10, "key_distribution": keys}
    return with_contents(**BASE | {"queries": {"kind": "held_out", "count": 3}} | settings)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (cell_of, {"key_distribution": STUDENT}),
        (cell_of, {"key_distribution": SPHERE}),
        (cell_of, {"key_distribution": {"kind": "mixture"}, "logits": "dot_product", "bandwidth": 2.0}),
        (cell_of, {"regression": {"kind": "sum", "terms": [RIDGE, OWN | {"name": "m"}]}}),
        (cell_of, {"key_distribution": OWN}),
        (rows_of_data, {}),
    ],
    ids=["student", "sphere", "mixture", "own function", "own keys", "rows"],
)
def test_runs__have_a_smaller_error_and_the_same_estimate(make, settings):
    cell = make(batch_size=1024, **settings)
    batches = batches_of(cell)
    found, plain = measured(cell, batches), measured(cell, [each._replace(control_sum=each.control_sum[..., :0])
                                                           for each in batches])  # fmt: skip
    assert found.estimator == EXPANSION
    for name in ("mse", "ensemble_variance", "mean_covariance", "correlation"):
        assert found.mcse[name] < 0.5 * plain.mcse[name]
        assert abs(found.estimate[name] - plain.estimate[name]) < 4.5 * plain.mcse[name]
    assert bool(found.n_nets) == (make is cell_of)


def test_errors_of_known_means__are_part_of_every_error():
    cell = cell_of(key_distribution=STUDENT, batch_size=256)
    blocks, _ = moments.controlled(stack(batches_of(cell)))
    combine, deviations = combine_heads(cell), expansion.known_of(cell).deviations
    bare, found = (performance(blocks, combine, cell.statistics, nets=each) for each in (None, deviations))
    # The mean squared error of an average of two heads is linear in mean products.
    error = np.sqrt(variance_over_nets(deviations[..., 2:].mean(axis=1) @ [0.25, 0.5, 0.25]))
    assert np.linalg.norm(found.contribution["mse"][: found.n_nets]) == pytest.approx(error, rel=1e-9)
    assert found.estimate["mse"] == pytest.approx(bare.estimate["mse"], rel=1e-12)
    # A squared bias is quadratic in mean errors, so it contains the variance that nets leave in these.
    excess = variance_over_nets(deviations[..., :2].mean(axis=2)).mean()
    assert bare.estimate["squared_bias"] - found.estimate["squared_bias"] == pytest.approx(excess, rel=1e-6)
    for name, share in bare.contribution.items():
        np.testing.assert_array_equal(found.contribution[name][found.n_nets :], share)
    for name in ("mse", "correlation", "ensemble_variance_by_query"):
        assert np.all(found.mcse[name] > bare.mcse[name])
    assert found.mcse["mse"] == pytest.approx(np.linalg.norm(found.contribution["mse"]), rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "cancels"), [({"noise_sd": 1.2}, 0.02), ({"n_keys": 400}, 0.9), ({"batch_size": 512}, None)]
)
def test_cells_of_one_stream__have_the_same_nets(changed, cancels):
    """Errors of nets alone: were nets those of a cell, or without their sign, little of them would cancel."""
    cells = [cell_of(key_distribution=SPHERE, **{"batch_size": 256} | each) for each in ({}, changed)]
    blocks = [moments.controlled(stack(batches_of(cell)))[0] for cell in cells]
    found = [performance(each, combine_heads(cell), cell.statistics, nets=expansion.known_of(cell).deviations)
             for each, cell in zip(blocks, cells, strict=True)]  # fmt: skip
    one, other = (each.contribution["mse"][: each.n_nets] for each in found)
    left = np.linalg.norm(one - other) / np.hypot(np.linalg.norm(one), np.linalg.norm(other))
    assert 0.7 < left < 1.3 if cancels is None else left < cancels


def test_squared_bias__has_the_quadratic_error_of_nets():
    """Of one mean error the quadratic part has √2 times the sum of its variances, by blocks and by nets."""
    cell = cell_of(key_distribution=SPHERE, queries={"kind": "origin"}, n_heads=1, arrangement="aligned", angle=None)
    blocks, deviations = moments.controlled(stack(batches_of(cell)))[0], expansion.known_of(cell).deviations
    bare, found = (performance(blocks, combine_heads(cell), cell.statistics, nets=each) for each in (None, deviations))
    added = found.remainder["squared_bias"] - bare.remainder["squared_bias"]
    assert added == pytest.approx(np.sqrt(2.0) * variance_over_nets(deviations[..., 0])[0], rel=1e-6)


def test_infinite_outcomes_at_points_of_nets__leave_a_cell_plain():
    """Without a warning, which would stop the test."""
    own = OWN | {"name": "m", "code": Code(INFINITE, "own.py", trusted=True)}
    cell = cell_of(regression=own)
    assert "outcomes or weights are infinite" in measured(cell, batches_of(cell, 1)).estimator


def test_nets_that_know_less_than_replicates__are_left_off(monkeypatch):
    monkeypatch.setattr(nets, "N_POINTS", 256)
    cell = cell_of(key_distribution=STUDENT, batch_size=1024, seed=5)
    assert measured(cell, batches_of(cell)).estimator.startswith("plain: integration tells")


@pytest.mark.parametrize(("stated", "expanded"), [("", False), ('control = "expansion"\n', True)])
def test_grids_without_closed_forms__are_plain_unless_the_design_says_more(stated, expanded, tmp_path):
    text = edited(DESIGN, "seed = 7\n", f"seed = 7\n{stated}")
    text = edited(text, "n_features = 6\n", 'n_features = 6\nkey_distribution = { kind = "sphere" }\n')
    assert {planned.cell.controlled for planned in load_design(write_design(tmp_path, text)).cells} == {expanded}
