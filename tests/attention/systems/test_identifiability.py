"""What is left of single heads and of tokens, against loops over positions, heads and channels; and its theory."""

import math

import numpy as np
import pytest
from builders import minimal_cell, numbers_of

from simstudy.attention.members import measure
from simstudy.attention.systems.identifiability import affine_rank, layer_norm, output_projection
from simstudy.data.shared import SharedData

N, D, H, P = 8, 6, 3, 2


def cell_of(kind, parameters, **settings):
    base = {"n_keys": N, "n_features": D, "n_heads": H, "head_dim": P, "arrangement": "aligned", "noise_sd": 0.3}
    return minimal_cell(**base | settings, instance={"kind": kind} | parameters)


def measured(cell, count=3):
    return measure(cell, SharedData(cell, 2, count))


def flat(cell, replicate, *shapes):
    """Arrays of the instance of one replicate, cut from one row of numbers."""
    row = list(SharedData(cell, 2 + replicate, 1).normals(sum(map(math.prod, shapes)), 1)[0, 0])
    parts = []
    for shape in shapes:
        parts.append(np.array(row[: math.prod(shape)]).reshape(shape))
        row = row[math.prod(shape) :]
    return parts


RECOVERIES = {
    "full rank": {},
    "short": {"rank_deficit": 2, "condition": 5.0},
    "average": {"output": "shared"},
    "held": {"output": "shared", "held": 4},
    "gated": {"gates": "position", "rank_deficit": 1},
    "gated average": {"gates": "position", "output": "shared"},
    "gated, held": {"gates": "position", "output": "shared", "held": 2},
    "gated, held for long": {"gates": "position", "output": "shared", "held": 8},
}


def layer_map(projection, gates, held):
    """Matrix from all outputs of heads to all outputs of the layer, one basis vector after the other."""
    groups = N // held
    table = np.zeros((groups * H * P, N * D))
    for g in range(groups):
        for h in range(H):
            for k in range(P):
                for t in range(g * held, (g + 1) * held):
                    for m in range(D):
                        entry = gates[t][h] * projection[h * P + k, m]
                        table[(g * H + h) * P + k, t * D + m] = entry
    return table


def recovered(cell, replicate):
    """Nullity and error of recovery of one replicate."""
    instance = cell.instance
    shapes = (N // instance.held, H * P), (N, D), (N, D), (H, D), (H * P, D), (D, D)
    outputs, noise, tokens, weights, left, right = flat(cell, replicate, *shapes)
    gates = np.ones((N, H))
    if instance.gates == "position":
        for t in range(N):
            for h in range(H):
                gates[t, h] = 1 / (1 + math.exp(-sum(tokens[t] * weights[h]) / math.sqrt(D)))
    table = layer_map(output_projection(instance, left, right, P), gates, instance.held)
    seen = outputs.ravel() @ table + cell.data.noise_sd * noise.ravel()
    found = np.linalg.lstsq(table.T, seen, rcond=1e-12)[0]
    return len(table) - np.linalg.matrix_rank(table, tol=1e-9), ((found - outputs.ravel()) ** 2).mean()


@pytest.mark.parametrize("parameters", RECOVERIES.values(), ids=RECOVERIES)
def test_recovery__is_that_from_the_whole_map(parameters):
    cell = cell_of("head_recovery", parameters)
    found = measured(cell)
    for r in range(3):
        nullity, error = recovered(cell, r)
        assert found["nullity"][r] == nullity
        assert found["recovery_error"][r] == pytest.approx(error, rel=1e-7)
    noisier = measured(cell_of("head_recovery", parameters, noise_sd=0.4))
    assert (np.abs(noisier["recovery_error"] / found["recovery_error"] - 1) > 1e-3).all()  # the control


OFTEN = {"full rank", "short", "gated", "average", "held"}


@pytest.mark.parametrize(
    "parameters",
    [pytest.param(each, marks=[] if name in OFTEN else pytest.mark.rare) for name, each in RECOVERIES.items()],
    ids=RECOVERIES,
)
def test_theory_of_recovery__is_what_is_measured(parameters):
    cell = cell_of("head_recovery", parameters)
    found, theory = measured(cell, 2000), numbers_of(cell)
    assert (found["nullity"] == theory["nullity"]).all()
    if "recovery_error" in theory:
        error = found["recovery_error"].std() / math.sqrt(2000)
        assert abs(found["recovery_error"].mean() - theory["recovery_error"]) < 4 * error
        wrong = numbers_of(cell_of("head_recovery", parameters, noise_sd=0.6))["recovery_error"]
        assert abs(found["recovery_error"].mean() - wrong) > 4 * error


@pytest.mark.parametrize(("n_heads", "deficit"), [(2, 0), (3, 2), (5, 1)])
def test_output_projection__has_the_rank_and_the_condition_stated(n_heads, deficit):
    instance = cell_of("head_recovery", {"rank_deficit": deficit, "condition": 7.0}).instance
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((n_heads * P, D)), rng.standard_normal((D, D))
    sizes = np.linalg.svd(output_projection(instance, left, right, P), compute_uv=False)
    kept = min(n_heads * P, D) - deficit
    assert sizes[0] == pytest.approx(1) and sizes[kept - 1] == pytest.approx(1 / 7) and (sizes[kept:] < 1e-12).all()
    np.testing.assert_allclose(sizes[1:kept] / sizes[: kept - 1], (1 / 7) ** (1 / (kept - 1)))
    shared = output_projection(instance.model_copy(update={"output": "shared"}), left, right, P)
    for h in range(n_heads):
        np.testing.assert_array_equal(shared[h * P : (h + 1) * P], shared[:P])
    np.testing.assert_allclose(shared[:P] @ shared[:P].T, np.eye(P) / n_heads**2, atol=1e-14)


def normalised(token):
    mean = sum(token) / len(token)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in token) / len(token))
    return [(x - mean) / deviation for x in token]


def hull(tokens):
    """Dimension of the affine hull, seen from the first token."""
    return np.linalg.matrix_rank(np.array([np.subtract(token, tokens[0]) for token in tokens[1:]]), tol=1e-8)


@pytest.mark.parametrize("offset", ["none", "random", "uniform"])
@pytest.mark.parametrize("rank", [1, 3, 5, 6])
def test_ranks__are_those_of_single_tokens_and_of_theory(rank, offset):
    cell = cell_of("layer_norm", {"rank": rank, "offset": offset}, n_keys=12)
    found, theory = measured(cell), numbers_of(cell)
    for r in range(3):
        coordinates, directions, away = flat(cell, r, (12, D), (D, D), (D,))
        moved = {"none": np.zeros(D), "random": away, "uniform": np.full(D, away[0])}[offset]
        tokens = [sum(c[j] * directions[j] for j in range(rank)) + moved for c in coordinates]
        after = [normalised(token) for token in tokens]
        centred = [np.array(token) - np.mean(token) for token in tokens]
        again = [np.array(token) - np.mean(token) for token in after]
        assert found["normalised_affine_rank"][r] == hull(after) == theory["normalised_affine_rank"]
        assert found["affine_rank_gain"][r] == hull(after) - hull(tokens) == theory["affine_rank_gain"]
        ranks = [np.linalg.matrix_rank(np.array(x), tol=1e-8) for x in (again, centred)]
        assert found["centred_rank_gain"][r] == ranks[0] - ranks[1] == theory["centred_rank_gain"] == 0
    expected = {"none": 0, "uniform": 0, "random": 1}[offset] if rank < 5 else 5 - rank
    assert (found["affine_rank_gain"] == expected).all()


def test_rank__is_not_that_of_rounding():
    rng = np.random.default_rng(0)
    sizes, direction = rng.standard_normal(32), rng.standard_normal(16)
    sizes[3] = 1e-6  # its features differ by a millionth of the 2 that they have in common
    after = layer_norm(np.outer(sizes, direction) + 2.0)
    assert affine_rank(after) == 1
    assert np.linalg.matrix_rank(after, tol=1e-13) > 1  # the control: rounding there is
    after[3, 5] += 1e-6
    assert affine_rank(after) == 2


def deep(cell, replicate):
    """Tokens after all layers, by loops over positions and heads."""
    instance = cell.instance
    tokens, *layers = flat(cell, replicate, (N, D), *[(4, H, P, D)] * instance.depth)
    for query, key, value, output in layers:
        inputs = [normalised(token) for token in tokens] if instance.normalisation == "layer_norm" else tokens
        added = np.zeros((N, D))
        for h in range(H):
            q, k, v = ([w[h] @ np.array(x) / math.sqrt(D) for x in inputs] for w in (query, key, value))
            for i in range(N):
                powers = [math.exp(sum(q[i] * k[j]) / math.sqrt(P)) for j in range(N)]
                mean = sum(power * v[j] for j, power in enumerate(powers)) / sum(powers)
                added[i] += mean @ output[h] / math.sqrt(H * P)
        scale = 1 / math.sqrt(instance.depth) if instance.residual == "scaled" else 1
        tokens = added if instance.residual == "none" else tokens + scale * added
    return tokens


@pytest.mark.parametrize("residual", ["none", "plain", "scaled"])
@pytest.mark.parametrize("normalisation", ["none", "layer_norm"])
def test_depth__is_that_of_loops(residual, normalisation):
    cell = cell_of("depth", {"depth": 3, "residual": residual, "normalisation": normalisation})
    found = measured(cell)
    for r in range(3):
        tokens = deep(cell, r)
        apart = tokens - tokens.mean(axis=0)
        spread = math.sqrt((apart**2).sum() / (tokens**2).sum())
        assert found["token_spread"][r] == pytest.approx(spread, rel=1e-6, abs=1e-12)
        assert found["log_token_spread"][r] == pytest.approx(math.log(max(spread, 2**-52)), abs=1e-6)
        squares = np.linalg.eigvalsh(apart.T @ apart) / (tokens**2).sum()
        assert found["visible_rank"][r] == (squares > 1e-12).sum()
    shallower = measured(cell_of("depth", {"depth": 2, "residual": residual, "normalisation": normalisation}))
    assert (np.abs(shallower["token_spread"] - found["token_spread"]) > 1e-9).all()  # the control
