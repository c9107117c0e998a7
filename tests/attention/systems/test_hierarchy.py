"""Hierarchies of resolutions against loops over positions and levels, their cost against counting numbers; theory."""

import math

import numpy as np
import pytest
from builders import minimal_cell, numbers_of
from scipy.special import i0

from simstudy.attention.members import measure
from simstudy.data.shared import SharedData

N, D, P = 21, 5, 2


def cell_of(kind, parameters, **settings):
    base = {"n_keys": N, "n_features": D, "n_heads": 1, "head_dim": P, "arrangement": "aligned"}
    return minimal_cell(**base | settings, instance={"kind": kind} | parameters)


def measured(cell, count=3):
    return measure(cell, SharedData(cell, 2, count))


def seen_at(x, level, i, causal):
    """What position i sees of rows x at a level."""
    start = i // 2**level * 2**level
    if causal:
        return sum(x[max(j, 0)] for j in range(start - 2**level + 1, start + 1)) / 2**level
    chunk = x[start : start + 2**level]
    return sum(chunk) / len(chunk)


def naive_scores(queries, keys, weights, causal):
    table = np.zeros((len(queries), len(keys)))
    for i in range(len(queries)):
        for j in range(len(keys)):
            for level, weight in enumerate(weights):
                table[i, j] += weight * sum(seen_at(queries, level, i, causal) * seen_at(keys, level, j, causal))
    return table


def naive_outputs(tokens, projections, weights, causal, temperature):
    queries, keys, values = (tokens @ w / math.sqrt(D) for w in projections)
    table = naive_scores(queries, keys, weights, causal) / temperature
    outputs = []
    for i in range(len(tokens)):
        powers = [math.exp(table[i, j]) for j in range(i + 1)]
        outputs.append(sum(power * values[j] for j, power in enumerate(powers)) / sum(powers))
    return np.array(outputs)


@pytest.mark.parametrize("downsampling", ["causal", "chunk"])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_hierarchy__is_that_of_loops(levels, downsampling):
    cell = cell_of("hierarchy", {"levels": levels, "downsampling": downsampling})
    found, causal = measured(cell), downsampling == "causal"
    for r in range(3):
        shared = SharedData(cell, 2 + r, 1)
        tokens, row = shared.keys(N)[0].T, shared.normals(N * D + 3 * D * P + levels, 1)[0, 0]
        others, projections = row[: N * D].reshape(N, D), row[N * D : -levels].reshape(3, D, P)
        weights = np.exp(row[-levels:]) / np.exp(row[-levels:]).sum()
        outputs, ordinary = (
            naive_outputs(tokens, projections, w, causal, cell.bandwidth**2) for w in (weights, np.ones(1))
        )
        assert found["attention_gap"][r] == pytest.approx(np.abs(outputs - ordinary).max(), abs=1e-12)
        change = 0.0
        for cut in [int(1 + step * (N - 2) / 7) for step in range(8)]:
            changed = np.concatenate([tokens[:cut], others[cut:]])
            new = naive_outputs(changed, projections, weights, causal, cell.bandwidth**2)
            change = max(change, np.abs(new[:cut] - outputs[:cut]).max())
        assert found["future_effect"][r] == pytest.approx(change, abs=1e-12)
    if causal:
        assert (found["future_effect"] == 0).all()
    elif levels > 1:  # the control: chunks that reach into the future show
        assert (found["future_effect"] > 1e-3).any()
    assert (found["attention_gap"] < 1e-12).all() == (levels == 1)


@pytest.mark.parametrize("projections", ["untied", "tied"])
@pytest.mark.parametrize("levels", [1, 2])
def test_score_kernel__is_that_of_loops_and_of_theory(levels, projections):
    cell = cell_of("score_kernel", {"levels": levels, "projections": projections})
    found, theory = measured(cell), numbers_of(cell)
    for r in range(3):
        shared = SharedData(cell, 2 + r, 1)
        row = shared.normals(2 * D * P + levels, 1)[0, 0]
        query, key = row[:-levels].reshape(2, D, P)
        key = query if projections == "tied" else key
        weights = np.exp(row[-levels:]) / np.exp(row[-levels:]).sum()
        tokens = shared.keys(N)[0].T
        scores = naive_scores(tokens @ query, tokens @ key, weights, True)
        values = np.linalg.eigvals(scores + scores.T).real
        signs = (values > 1e-9).sum(), (values < -1e-9).sum()
        assert signs == (found["positive_eigenvalues"][r], found["negative_eigenvalues"][r])
        assert signs == (theory["positive_eigenvalues"], theory["negative_eigenvalues"])
        form = [[sum(query[i] * key[j]) for j in range(D)] for i in range(D)]
        both = sum(((form[i][j] + form[j][i]) / 2) ** 2 for i in range(D) for j in range(D))
        assert found["symmetric_share"][r] == pytest.approx(both / sum(x * x for line in form for x in line))
    assert signs == ((P * levels, P * levels) if projections == "untied" else (P * levels, 0))


def test_theory_of_scores__holds_where_it_says_so():
    cell = cell_of("score_kernel", {"levels": 1})
    share = measured(cell, 4000)["symmetric_share"]
    error = share.std() / math.sqrt(4000)
    assert abs(share.mean() - numbers_of(cell)["symmetric_share"]) < 4 * error
    assert abs(share.mean() - 0.5 * (1 + 1 / (D + 1))) > 4 * error  # the control
    # Heads as wide as the model, and more levels than positions can tell apart: no formula.
    assert "negative_eigenvalues" not in numbers_of(cell_of("score_kernel", {"levels": 1}, head_dim=3))
    assert "negative_eigenvalues" not in numbers_of(cell_of("score_kernel", {"levels": 4}))
    wide = measured(cell_of("score_kernel", {"levels": 1}, n_features=2), 50)
    assert wide["negative_eigenvalues"].mean() < 1.9


AR = {"kind": "autoregressive", "coefficient": 0.9}
SIGNALS = {
    "white": {},
    "autoregressive": {"key_distribution": AR},
    "band": {"instance": {"kind": "resolution", "chunk": 4, "signal": "band_limited", "band": 3}},
}


@pytest.mark.parametrize("settings", SIGNALS.values(), ids=SIGNALS)
@pytest.mark.parametrize("regression", ["linear", {"kind": "ridge", "frequency": 2.0}])
def test_resolution__is_that_of_loops_and_of_theory(settings, regression):
    base = {"n_keys": 24, "regression": regression, "noise_sd": 0.5, "instance": {"kind": "resolution", "chunk": 4}}
    cell = minimal_cell(**base | settings)
    found = measured(cell, 3000)
    for r in range(3):
        shared = SharedData(cell, 2 + r, 1)
        x = shared.keys(24)[0][0]
        if cell.instance.signal == "band_limited":
            a = shared.normals(6 * 6, 1)[0, 0]
            x = [
                sum(a[k] * math.cos(math.pi * (k + 1) * i / 12) + a[k + 3] * math.sin(math.pi * (k + 1) * i / 12)
                    for k in range(3)) / math.sqrt(3)
                for i in range(24)
            ]  # fmt: skip
        m = list(x) if regression == "linear" else [math.sin(2 * value) for value in x]
        noise = 0.5 * shared.noise(cell)[0]
        missed = sum((m[i] - sum(m[i // 4 * 4 : i // 4 * 4 + 4]) / 4) ** 2 for i in range(24)) / 24
        kept = sum((sum(noise[i : i + 4]) / 4) ** 2 for i in range(0, 24, 4)) / 6
        assert found["level_error"][r] == pytest.approx(missed, rel=1e-9)
        assert found["level_noise"][r] == pytest.approx(kept, rel=1e-9)
    theory = numbers_of(cell)
    assert ("level_error" in theory) == (regression == "linear")
    for name, value in theory.items():
        error = found[name].std() / math.sqrt(3000)
        assert abs(found[name].mean() - value) < 4 * error
        assert abs(found[name].mean() - 1.2 * value) > 4 * error  # the control


@pytest.mark.parametrize("keys", [{"kind": "gaussian"}, {"kind": "mixture", "separation": 3.0}], ids=str)
def test_mass_of_chunks__is_that_of_loops(keys):
    n, width = 24, 4
    cell = cell_of("coarse_mass", {"chunk": width}, n_keys=n, key_distribution=keys)
    found = measured(cell)
    for r, scores in enumerate(SharedData(cell, 2, 3).keys(n)[:, 0]):
        chunks = [sum(scores[first : first + width]) / width for first in range(0, n, width)]
        error = math.log(sum(map(math.exp, scores)) / n) - math.log(sum(map(math.exp, chunks)) / len(chunks))
        mean = sum(scores) / n
        k2, k3, fourth = (sum((s - mean) ** power for s in scores) / n for power in (2, 3, 4))
        gaussian = error - k2 * (1 - 1 / width) / 2
        left = gaussian - k3 * (1 - width**-2) / 6 - (fourth - 3 * k2**2) * (1 - width**-3) / 24
        assert found["mass_error"][r] == pytest.approx(error, rel=1e-9)
        assert found["gaussian_gap"][r] == pytest.approx(gaussian, abs=1e-9)
        assert found["corrected_gap"][r] == pytest.approx(left, abs=1e-9)


def test_correction__is_that_of_the_cumulants_of_a_circle():
    """There a mean weight is I₀(√2 s) for scores times s: the next term, κ₆/720 = 1/72, is what is left."""
    keys = {"kind": "sphere", "radius": math.sqrt(2)}
    found = measured(cell_of("coarse_mass", {"chunk": 8}, n_keys=4096, n_features=2, key_distribution=keys), 60)
    truth = math.log(i0(math.sqrt(2))) - 8 * math.log(i0(math.sqrt(2) / 8))
    for name, expected in (("mass_error", truth), ("gaussian_gap", truth - 7 / 16), ("corrected_gap", 0.0113)):
        assert found[name].mean() == pytest.approx(expected, abs=0.003)
    assert abs(found["gaussian_gap"].mean()) > 4 * abs(found["corrected_gap"].mean())
