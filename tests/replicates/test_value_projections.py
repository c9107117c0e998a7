"""Values that are vectors, and what value and output projections make of the errors of heads."""

import numpy as np
import pytest
from builders import arrays_of, batches_of, estimated, minimal_cell

from simstudy import nw_ensemble
from simstudy.attention.combinations import combine_heads
from simstudy.data.heads import key_projections, overlap, query_points
from simstudy.replicates.performance import performance
from simstudy.replicates.population import measured
from simstudy.theory import exact_moments, predicted_measure_errors, predicted_measures

H, V, K, C = 3, 4, 2, 5
RNG = np.random.default_rng(15)
VALUE, OUTPUT = RNG.normal(size=(H, V, K)), RNG.normal(size=(H, K, C))
MAPS = VALUE @ OUTPUT
RANDOM = {"kind": "random", "n_components": 6, "value_dim": 3}
KINDS = {"random": RANDOM, "transposed": RANDOM | {"output": "transposed"}, "disjoint": "disjoint"}
MEASURES = (
    "squared_bias", "mean_squared_bias", "ambiguity", "mean_variance", "mean_covariance", "ensemble_variance", "mse",
    "correlation", "effective_heads",
)  # fmt: skip


def cell_of(kind, **settings):
    base = {"n_keys": 20, "n_heads": H, "head_dim": 1, "arrangement": "rotated", "angle": 60.0, "noise_sd": 0.7,
            "regression": "linear", "queries": {"kind": "points", "points": [[0.0], [0.5, -1.0]]}}  # fmt: skip
    stated = {} if kind == "none" else {"value_projections": KINDS[kind]}
    return minimal_cell(**base | stated | settings)


@pytest.mark.parametrize("output", ["own", "transposed"])
def test_overlap__has_mean_1_and_random_projections_are_as_alike_as_uniform_draws(output):
    """tr(A_h'A_g) of independent draws is k²/v on average where W_O is W_V transposed, and 0 where not."""
    assert [overlap(cell_of(kind)).mean() for kind in KINDS] == pytest.approx([1.0] * 3)
    settings = {"n_heads": 40, "arrangement": "aligned", "angle": None}
    found = overlap(cell_of("random", value_projections=RANDOM | {"output": output}, **settings))
    np.testing.assert_allclose(np.diagonal(found), found[0, 0])
    apart = found[~np.eye(40, dtype=bool)] * 3.0 / found[0, 0]
    assert abs(apart.mean() - (9.0 / 6.0 if output == "transposed" else 0.0)) < 0.15
    assert apart.std() > 0.2


def test_vectors__have_the_moments_that_theory_says():
    """The long way: vectors in a direction of their own and with noise, heads key by key, maps, squared distances."""
    cell, n_replicates = cell_of("none"), 1200
    keys_of, (point, _) = key_projections(cell), query_points(cell)
    rng, products = np.random.default_rng(3), np.empty((n_replicates, H, H))
    for r in range(n_replicates):
        keys = rng.normal(size=(20, 6))
        direction = rng.normal(size=V)
        values = [x[0] * direction + 0.7 * rng.normal(size=V) for x in keys]
        errors = []
        for w, a in zip(keys_of, MAPS, strict=True):
            kernels = [np.exp(-((x @ w - point @ w) ** 2).sum() / (2 * 0.8**2)) for x in keys]
            estimate = sum(k * y for k, y in zip(kernels, values, strict=True)) / sum(kernels)
            errors.append(a.T @ (estimate - point[0] * direction))
        products[r] = np.array(errors) @ np.array(errors).T
    prediction = exact_moments(cell, *arrays_of(cell))
    numbers = prediction.covariance[0] + np.outer(prediction.bias[0], prediction.bias[0])
    through = np.einsum("hvc,gvc->hg", MAPS, MAPS)
    expected = through * numbers
    z = (products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(n_replicates))
    assert np.abs(z).max() < 4.0
    scale = H**2 / (sum(MAPS) ** 2).sum()
    at_first = prediction._replace(bias=prediction.bias[:1], covariance=prediction.covariance[:1])
    mse = predicted_measures(at_first, [1 / H] * H, through / through.mean())["mse"]
    assert mse == pytest.approx(scale * expected.mean())


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
@pytest.mark.parametrize("kind", KINDS)
def test_simulation__agrees_with_exact_theory(kind, noise_treatment):
    cell = cell_of(kind, batch_size=4096, noise_treatment=noise_treatment)
    found, arguments = estimated(cell), (exact_moments(cell, *arrays_of(cell)), [1 / H] * H, overlap(cell))
    expected, bounds = predicted_measures(*arguments), predicted_measure_errors(*arguments)
    for name in MEASURES:
        gap = abs(found.estimate[name] - expected[name])
        assert gap < 4.0 * found.mcse[name] + bounds[name] + 1e-12, name
        assert bounds[name] < 1e-3 * max(abs(expected[name]), 1e-9), name


def test_estimates_of_nw_ensemble__come_out_of_the_same_maps():
    cell = cell_of("none")
    keys, values = RNG.normal(size=(20, 6)), RNG.normal(size=(20, V))
    points, heads = query_points(cell), key_projections(cell)
    alone = nw_ensemble(keys, values, points, heads, 0.8).head_estimate.values
    mapped = nw_ensemble(keys, values, points, heads, 0.8, value_projections=VALUE, output_projections=OUTPUT)
    np.testing.assert_allclose(mapped.estimate, np.einsum("qhv,hvc->qc", alone, MAPS))


def test_population_of_heads__draws_their_value_projections_with_them():
    cell = cell_of("random", population=["heads"], batch_size=16, head_seed=4)
    assert cell.population == ("heads",)
    batches = batches_of(cell, 6)
    overlaps = [overlap(cell.in_batch(number)) for number in range(6)]
    assert not np.allclose(overlaps[0], overlaps[1])
    given = [performance(batch, combine_heads(cell), cell.statistics, each).estimate["mean_covariance"]
             for batch, each in zip(batches, overlaps, strict=True)]  # fmt: skip
    assert measured(cell, batches).estimate["mean_covariance"] == pytest.approx(np.mean(given))
