"""Learners other than given heads: gradients against differences, forests and colonies against plain computation."""

from __future__ import annotations

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention import learner_of
from simstudy.attention.combinations import combine_heads
from simstudy.attention.learners.trained import loss_and_gradient
from simstudy.data.heads import key_projections, query_points
from simstudy.data.shared import SharedData
from simstudy.design.feasibility import impossibilities
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.performance import performance

DRAWN = {"noise_treatment": "drawn"}
QUERIES = {"kind": "gaussian", "count": 4}
SITES = {"kind": "points", "points": [[10.0], [8.0], [6.0], [4.0], [2.0]]}
COLONY = {
    "learner": "ant_colony", "regression": "linear", "queries": SITES, "noise_sd": 2.0, "n_heads": 12, "head_dim": 1,
    "arrangement": "aligned", "n_keys": 60, **DRAWN,
}  # fmt: skip


def members(cell, first=0, count=3):
    return learner_of(cell).evaluate(SharedData(cell, first, count))


def naive_loss(x, y, w, b):
    total = 0.0
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        f = []
        for head in w:
            weights = np.array([np.exp(-np.sum(((x[i] - x[j]) @ head) ** 2) / (2 * b**2)) for j in others])
            f.append(weights @ y[others] / weights.sum())
        total += (np.mean(f) - y[i]) ** 2
    return total / len(y)


def test_gradient__is_that_of_the_leave_one_out_error():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(12, 4)), rng.normal(size=12), rng.normal(size=(3, 4, 2))
    loss, gradient = loss_and_gradient(x, y, w, 0.9)
    assert loss == pytest.approx(naive_loss(x, y, w, 0.9))
    for place in [(0, 0, 0), (1, 3, 1), (2, 2, 0)]:
        step = np.zeros_like(w)
        step[place] = 1e-6
        slope = (naive_loss(x, y, w + step, 0.9) - naive_loss(x, y, w - step, 0.9)) / 2e-6
        assert gradient[place] == pytest.approx(slope, rel=1e-6)


def test_training__lowers_the_error_and_keeps_columns_orthonormal():
    cell = minimal_cell(
        learner={"kind": "trained", "steps": 40}, n_heads=2, head_dim=1, arrangement="haar", n_features=3, n_keys=60,
        regression={"function": "ridge", "amplitude": 3.0}, noise_sd=0.1, bandwidth=0.4, **DRAWN,
    )  # fmt: skip
    shared, learner = SharedData(cell, 0, 4), learner_of(cell)
    start = key_projections(cell)
    for x, y in zip(shared.keys(60), shared.values(cell), strict=True):
        w = learner.train(x.T, y, start)
        np.testing.assert_allclose(w.swapaxes(1, 2) @ w, np.ones((2, 1, 1)), atol=1e-12)
        before, after = (loss_and_gradient(x.T, y, heads, 0.4)[0] for heads in (start, w))
        assert after < 0.5 * before
        assert np.abs(w[:, 0, 0]).min() > 0.9  # the direction of the ridge is found
    assert members(cell).indices.shape[0] == 3


def test_forest__is_that_of_the_data_and_of_the_number_of_the_replicate():
    cell = minimal_cell(
        learner={"kind": "random_forest", "max_features": 2, "min_leaf": 1}, regression="linear", queries=QUERIES,
        noise_sd=0.1, n_heads=50, n_keys=300, arrangement="aligned", **DRAWN,
    )  # fmt: skip
    found = members(cell)
    assert found.means.shape == (3, 4, 50)
    np.testing.assert_array_equal(found.means[1:], members(cell, 1, 2).means)
    assert np.abs(found.means.mean(axis=2) - query_points(cell)[:, 0]).mean() < 0.4
    assert found.means.std(axis=2).min() > 0


def naive_colony(cell, replicate):
    """One colony, ant by ant, from the same random numbers."""
    from simstudy.data.addresses import Role, normals, uniforms

    q, n_ants, s = np.array([10.0, 8.0, 6.0, 4.0, 2.0]), cell.heads.n_heads, cell.estimator.learner
    luck = uniforms(cell.data_id, Role.LEARNER, replicate, 1, cell.data.n_keys, 2 * n_ants)[0]
    noise = normals(cell.data_id, Role.NOISE, replicate, 1, cell.data.n_keys, n_ants)[0]
    pheromone, recruitment = [1.0] * 5, [0.0] * 5
    seen = [[[] for _ in q] for _ in range(n_ants)]
    for t in range(cell.data.n_keys):
        gains = [0.0] * 5
        for a in range(n_ants):
            u = luck[n_ants + a, t]
            if luck[a, t] < s.exploration:
                site = int(u * 5)
            else:
                shares = np.cumsum(pheromone) / sum(pheromone)
                site = next((k for k in range(4) if u <= shares[k]), 4)
            seen[a][site].append(q[site] + 2.0 * noise[a, t])
            gains[site] += s.enthusiasm * max(np.mean(seen[a][site]) - 6.0, 0.0)
        recruitment = [r + g for r, g in zip(recruitment, gains, strict=True)]
        pheromone = [(1 - s.evaporation) * p + s.reinforcement * r for p, r in zip(pheromone, recruitment, strict=True)]
        if max(recruitment) > s.quorum:
            break
        recruitment = [0.8 * r for r in recruitment]
    return np.array([[np.mean(observed) if observed else 0.0 for observed in ant] for ant in seen]).T


@pytest.mark.parametrize("settings", [{}, {"exploration": 0.9, "quorum": 60.0}])
def test_colony__is_that_of_the_plain_rules(settings):
    cell = minimal_cell(**COLONY | {"learner": {"kind": "ant_colony"} | settings})
    found = members(cell, 5, 3).means
    for r in range(3):
        np.testing.assert_allclose(found[r], naive_colony(cell, 5 + r), atol=1e-10)


def test_every_learner__passes_through_a_batch_with_its_own_correlation():
    correlations = {}
    for exploration in (0.05, 0.95):
        cell = minimal_cell(**COLONY | {"learner": {"kind": "ant_colony", "exploration": exploration}})
        (moments,) = simulate_batch([cell], 0)
        found = performance(moments, combine_heads(cell), cell.statistics).estimate
        variance, covariance = found["mean_variance"], found["mean_covariance"]
        law = covariance + (variance - covariance) / cell.heads.n_heads
        assert found["ensemble_variance"] == pytest.approx(law, rel=1e-9)
        correlations[exploration] = float(covariance / variance)
    assert correlations[0.05] != pytest.approx(correlations[0.95], abs=0.01)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"learner": "trained"}, "noise_treatment"),
        ({"learner": "trained", "logits": "dot_product", **DRAWN}, "learner"),
        ({"learner": {"kind": "random_forest", "max_features": 99}, **DRAWN}, "learner"),
        ({"learner": "ant_colony", "reference": "attention", **DRAWN}, "reference"),
        ({"learner": "ant_colony", "combination": {"rule": "fitted", "n_validation": 9}, **DRAWN}, "combination"),
    ],
)
def test_what_a_learner_cannot_have__is_named(settings, setting):
    assert setting in [name for name, _ in impossibilities(minimal_cell(**settings))]
