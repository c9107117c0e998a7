"""Learners other than given heads: against differences and plain computation; and weights that heads are given."""

import numpy as np
import pytest
from builders import RIDGE, estimated, minimal_cell

from simstudy.attention import members_of
from simstudy.attention.combinations import combine_heads, fit_weights
from simstudy.attention.learners.trained import loss_and_gradient, tokens_of, train
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.heads import key_projections, query_points
from simstudy.data.shared import SharedData

DRAWN = {"noise_treatment": "drawn"}
QUERIES = {"kind": "gaussian", "count": 4}
SITES = {"kind": "points", "points": [[10.0], [8.0], [6.0], [4.0], [2.0]]}
COLONY = {
    "learner": "ant_colony", "regression": "linear", "queries": SITES, "noise_sd": 2.0, "n_heads": 12, "head_dim": 1,
    "arrangement": "aligned", "n_keys": 60, **DRAWN,
}  # fmt: skip
DECAY = 0.03


def members(cell, first=0, count=3):
    return members_of(cell, SharedData(cell, first, count))


def naive_loss(x, y, w, b, learned):
    """Head by head, pair by pair; what is linear is found by least squares of the data below rows for the decay."""
    n, mean, read = len(y), y.mean(), []
    for i in range(n):
        others, row = [j for j in range(n) if j != i], []
        for head in w:
            weights = np.array([np.exp(-np.sum(((x[i] - x[j]) @ head) ** 2) / (2 * b**2)) for j in others])
            tokens = [[y[j] - mean, *x[j]] if learned == "values" else [y[j] - mean] for j in others]
            row += list(weights @ np.array(tokens) / weights.sum())
        read.append(row)
    if learned == "projections":
        return np.mean((np.mean(read, axis=1) - (y - mean)) ** 2)
    below = np.sqrt(n * DECAY) * np.eye(len(read[0]))
    rows, outcomes = np.vstack([read, below]), np.append(y - mean, np.zeros(len(below)))
    return np.sum((rows @ np.linalg.lstsq(rows, outcomes, rcond=None)[0] - outcomes) ** 2) / n


@pytest.mark.parametrize("learned", ["projections", "output", "values"])
def test_gradient__is_that_of_the_leave_one_out_error(learned):
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(14, 4)), rng.normal(size=14) + 1.0, rng.normal(size=(3, 4, 2))
    loss, gradient = loss_and_gradient(x, y, w, 0.9, tokens_of(learned, x, y), DECAY)
    assert loss == pytest.approx(naive_loss(x, y, w, 0.9, learned))
    for place in [(0, 0, 0), (1, 3, 1), (2, 2, 0)]:
        step = np.zeros_like(w)
        step[place] = 1e-5
        slope = (naive_loss(x, y, w + step, 0.9, learned) - naive_loss(x, y, w - step, 0.9, learned)) / 2e-5
        assert gradient[place] == pytest.approx(slope, rel=1e-5)


def test_heads_that_learn__predict_by_the_values_that_they_were_trained_with_err_less_and_stay_orthonormal():
    shape = {"n_heads": 2, "head_dim": 1, "arrangement": "haar", "n_features": 3, "n_keys": 20, "queries": QUERIES}
    cell = minimal_cell(learner={"kind": "trained", "steps": 2, "learned": "values"}, **shape, **DRAWN)
    shared = SharedData(cell, 0, 1)
    x, y = (each[0].T.astype(float) for each in (shared.keys(20), shared.values(cell)))
    w, values = train(cell.estimator.learner, cell.bandwidth, x, y, key_projections(cell))
    for q, point in enumerate(query_points(cell)):
        weights = np.exp(-(((x - point) @ w)[:, :, 0] ** 2) / (2 * cell.bandwidth**2))
        told = [2 * weights[h] @ values[h] / weights[h].sum() for h in range(2)]
        np.testing.assert_allclose(members(cell, count=1).means[0, q], told, rtol=1e-5)
    cell = minimal_cell(
        learner={"kind": "trained", "steps": 40}, n_heads=2, head_dim=1, arrangement="haar", n_features=3, n_keys=60,
        regression={"kind": "ridge", "amplitude": 3.0}, noise_sd=0.1, bandwidth=0.4, **DRAWN,
    )  # fmt: skip
    shared, start = SharedData(cell, 0, 4), key_projections(cell)
    for x, y in zip(shared.keys(60), shared.values(cell), strict=True):
        w, alone = train(cell.estimator.learner, cell.bandwidth, x.T, y, start)[0], tokens_of("projections", x.T, y)
        np.testing.assert_allclose(w.swapaxes(1, 2) @ w, np.ones((2, 1, 1)), atol=1e-12)
        before, after = (loss_and_gradient(x.T, y, heads, 0.4, alone, 0.0)[0] for heads in (start, w))
        assert after < 0.5 * before and np.abs(w[:, 0, 0]).min() > 0.9  # the direction of the ridge is found
    assert members(cell).indices.shape[0] == 3


def test_least_squares_of_many_features__are_those_of_one_replicate_at_a_time(monkeypatch):
    held, solve, learner = [], np.linalg.solve, {"kind": "trained", "steps": 0, "learned": "values"}
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: held.append(len(a)) or solve(a, b))
    members(minimal_cell(learner=learner, n_heads=4, n_features=99, **DRAWN))
    assert held == [1, 1, 1]


FOREST = {"kind": "random_forest", "max_features": 2, "min_leaf": 1}
BOOSTING = {"kind": "gradient_boosting", "shrinkage": 0.5, "subsample": 1.0}


@pytest.mark.parametrize(("learner", "n_heads", "n_keys", "most"), [(FOREST, 50, 300, 0.4), (BOOSTING, 30, 200, 0.3)])
def test_trees__are_those_of_the_data_and_of_the_number_of_the_replicate(learner, n_heads, n_keys, most):
    settings = {"n_heads": n_heads, "n_keys": n_keys, "arrangement": "aligned", **DRAWN}
    cell = minimal_cell(learner=learner, regression="linear", queries=QUERIES, noise_sd=0.1, **settings)
    found = members(cell).means
    assert found.shape == (3, 4, n_heads)
    np.testing.assert_array_equal(found[1:], members(cell, 1, 2).means)
    assert np.abs(found.mean(axis=2) - query_points(cell)[:, 0]).mean() < most
    if learner is FOREST:
        assert found.std(axis=2).min() > 0
    else:  # whose trees add up to the prediction, and each lowers the error on its data
        assert np.abs(found[..., 1:5]).mean() > 3 * np.abs(found[..., -5:]).mean()


def naive_colony(cell, replicate):
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
        if max(recruitment) > s.quorum * (n_ants if s.per_ant else 1):
            break
        recruitment = [0.8 * r for r in recruitment]
    visited = [q[site] for ant in seen for site in range(5) for _ in ant[site]]
    means = np.array([[np.mean(observed) if observed else 0.0 for observed in ant] for ant in seen]).T
    return means, 10.0 - np.mean(visited)


@pytest.mark.parametrize("settings", [{}, {"exploration": 0.9, "quorum": 60.0}, {"quorum": 1.0, "per_ant": True}])
def test_colony__is_that_of_the_plain_rules(settings):
    cell = minimal_cell(**COLONY | {"learner": {"kind": "ant_colony"} | settings})
    found = members(cell, 5, 3)
    for r in range(3):
        means, regret = naive_colony(cell, 5 + r)
        np.testing.assert_allclose(found.means[r], means, atol=1e-10)
        assert found.statistics["regret"][r] == pytest.approx(regret)


@pytest.mark.parametrize("combination, expected", [
    ("uniform", [1 / 3] * 3),
    ("sum", [1, 1, 1]),
    ([0.5, -1.0, 2.0], [0.5, -1.0, 2.0]),
    ({"kind": "geometric", "ratio": 0.5}, [4 / 7, 2 / 7, 1 / 7]),
    ("fibonacci", [2 / 4, 1 / 4, 1 / 4]),
])  # fmt: skip
def test_fixed_weights__by_hand(combination, expected):
    cell = minimal_cell(n_heads=3, combination=combination)
    np.testing.assert_allclose(cell.weights, expected, rtol=1e-15)
    given = combine_heads(cell)(np.zeros((2, 3, 3)), np.zeros((2, 3)), np.zeros(2))
    np.testing.assert_allclose(given, [expected, expected], rtol=1e-15)


def test_fitted_weights__are_those_that_made_the_outcomes_and_tend_to_the_optimal_ones_as_validation_grows():
    outputs, truth = np.random.default_rng(2).normal(size=(50, 3)), np.array([0.6, 0.4, 0.0])
    for within in ("affine", "simplex", "unconstrained"):
        np.testing.assert_allclose(fit_weights(within, outputs, outputs @ truth), truth, atol=1e-7)
    # Combinations share stored batches unless they enter a replicate.
    assert minimal_cell().identity("e") == minimal_cell(combination={"kind": "optimal"}).identity("e")
    fitted = minimal_cell(combination={"kind": "fitted", "n_validation": 50}, **DRAWN)
    assert fitted.identity("e") != minimal_cell(**DRAWN).identity("e")
    ways = [*({"kind": "fitted", "n_validation": n} for n in (6, 2000)), {"kind": "optimal"}]
    base = {"regression": RIDGE, "queries": {"kind": "gaussian", "count": 5}, "n_heads": 3, **DRAWN}
    few, many, best = (estimated(minimal_cell(combination=way | {"within": "affine"}, **base), 4) for way in ways)
    errors, margin = [each.estimate["mse"] for each in (few, many, best)], 4 * many.mcse["mse"]
    assert errors[0] > errors[1] + margin
    # In each replicate the best weights for that replicate: better than one set of weights for all.
    assert errors[1] < errors[2] + margin
