"""Functions of studies about attention heads: against loops, searches, integrals and theory."""

import math

import naive
import numpy as np
import pytest
from builders import Draw, functions_of, minimal_cell
from scipy import special
from scipy.optimize import minimize
from scipy.special import i0, softmax

RNG = np.random.default_rng(3)
HIERARCHICAL = functions_of("hierarchical")
HOPFIELD = functions_of("hopfield-state")
IDENTIFIABILITY = functions_of("identifiability")
TEMPERATURE = functions_of("temperature")
VARIANTS = functions_of("variants")


@pytest.mark.parametrize("d", [5, 2])
def test_error_of_the_best_head__is_the_least_that_a_search_finds(d):
    rng = np.random.default_rng(2)
    tokens, logits = rng.normal(size=(4, d)), rng.normal(size=(4, 4))

    def missed(flat):
        query, key = flat.reshape(2, d)
        gaps = np.outer(tokens @ query, tokens @ key) - logits
        return ((gaps - gaps.mean(axis=1, keepdims=True)) ** 2).sum()

    best = min((minimize(missed, rng.normal(size=2 * d)) for _ in range(4)), key=lambda found: found.fun)
    whole = ((logits - logits.mean(axis=1, keepdims=True)) ** 2).sum()
    query, key = best.x.reshape(2, d)
    drawn, wanted = softmax([np.outer(tokens @ query, tokens @ key), logits], axis=2)
    found = functions_of("head-limits")["best_head"](tokens[None], logits[None], 1)
    assert found["pattern_error"][0] == pytest.approx(best.fun / whole, rel=1e-5)
    assert found["pattern_distance"][0] == pytest.approx(np.abs(drawn - wanted).sum() / 8, rel=1e-3)


def seen_at(x, level, i, causal):
    """What position i sees of the rows x at a level."""
    start = i // 2**level * 2**level
    if causal:
        return sum(x[max(j, 0)] for j in range(start - 2**level + 1, start + 1)) / 2**level
    chunk = x[start : start + 2**level]
    return sum(chunk) / len(chunk)


@pytest.mark.parametrize("downsampling", ["causal", "chunk"])
def test_mixed_scores__are_those_of_loops(downsampling):
    queries, keys = RNG.normal(size=(2, 21, 3))
    weights, causal = np.array([0.1, 0.2, 0.4, 0.3]), downsampling == "causal"
    expected = [
        [sum(w * seen_at(queries, k, i, causal) @ seen_at(keys, k, j, causal) for k, w in enumerate(weights))
         for j in range(21)]
        for i in range(21)
    ]  # fmt: skip
    found = HIERARCHICAL["mixed_scores"](queries[None], keys[None], weights[None], downsampling)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_hierarchical_estimator__is_that_of_loops():
    x, queries, b = RNG.normal(size=22), RNG.normal(size=3), 0.4
    total = 0.0
    for q in queries:
        distances = [sum((q - seen_at(x, level, i, False)) ** 2 for level in range(3)) / 3 for i in range(22)]
        weights = softmax(-np.array(distances) / (2.0 * b**2))
        total += (weights @ np.sin(2.0 * x) - math.sin(2.0 * q)) ** 2 + 0.3**2 * (weights**2).sum()
    found = HIERARCHICAL["regress"](x[None], queries[None], 3, b, noise_sd=0.3)["squared_error"]
    assert found == pytest.approx(total / 3, rel=1e-10)


def test_hierarchical_correction__is_that_of_the_cumulants_of_a_circle():
    """There the mean of exp(√2 s cos) is I₀(√2 s): κ₂ = 1, κ₄ = −3/2, and what is left is near κ₆/720 = 1/72."""
    x = math.sqrt(2.0) * np.cos(2.0 * math.pi * RNG.random((60, 4096)))
    found = {name: values.mean() for name, values in HIERARCHICAL["weigh_chunks"](x, 8).items()}
    gaussian = math.log(i0(math.sqrt(2))) - 8 * math.log(i0(math.sqrt(2) / 8)) - 7 / 16
    assert found["gaussian_gap"] == pytest.approx(gaussian, abs=0.003)
    assert found["corrected_gap"] == pytest.approx(gaussian + 1.5 * (1 - 8**-3) / 24, abs=0.003)
    # Theory of eigenvalues is silent where it does not hold.
    assert HIERARCHICAL["kernel_theory"](levels=4)["negative_eigenvalues"] == 16
    for wide in ({"head_dim": 5}, {"levels": 6}):
        assert "negative_eigenvalues" not in HIERARCHICAL["kernel_theory"](**wide)


@pytest.mark.parametrize("levels", [1, 3])
def test_hierarchical_causal_layer__sees_no_later_token_and_is_ordinary_at_one_level(levels):
    given = {name: each[:5] for name, each in HIERARCHICAL["sequence"](Draw(4000), levels=levels, n_keys=21).items()}
    found = HIERARCHICAL["attend"](**given)
    assert found["future_effect"].max() == 0.0 and (found["attention_gap"] < 1e-12).all() == (levels == 1)
    assert HIERARCHICAL["attend"](**given, downsampling="chunk")["future_effect"].max() > 1e-3 or levels == 1


@pytest.mark.parametrize("key_scale", ["raw", "normalised"])
def test_hopfield_tokens__are_those_of_loops(key_scale):
    rng = np.random.default_rng(5)
    tokens, weights = rng.normal(size=(1, 5, 3)), rng.normal(size=(1, 3, 3, 9))
    found = HOPFIELD["climb"](tokens, weights, 0.4, key_scale, skip=0.3)
    rows, state, cosines, ranks = list(tokens[0]), np.zeros((5, 5)), [], []
    for layer, (query, key, value) in enumerate(np.split(each, 3, axis=1) for each in weights[0]):
        asked, seen = ([row @ matrix for row in rows] for matrix in (query, key))
        if key_scale == "normalised":
            asked, seen = ([row * np.sqrt(3) / np.linalg.norm(row) for row in each] for each in (asked, seen))
        memory = 0.4 if layer else 0.0
        for i in range(5):
            state[i] = [memory * state[i, j] + (1 - memory) * (asked[i] @ seen[j]) for j in range(5)]
        shares = [naive.normalised(np.exp(row)) for row in state]
        rows = [0.3 * rows[i] + 0.7 * sum(shares[i][j] * (rows[j] @ value) for j in range(5)) for i in range(5)]
        units = [row / np.linalg.norm(row) for row in rows]
        cosines.append(np.mean([units[i] @ units[j] for i in range(5) for j in range(5) if i != j]))
        sizes = np.linalg.eigvalsh(np.array(rows).T @ rows)
        ranks.append(np.exp(-sum(p * np.log(p) for p in sizes / sizes.sum())))
    numbers = {"token_cosine": cosines[-1], "token_rank": ranks[-1]}
    numbers |= {"path_cosine": np.mean(cosines), "path_rank": np.mean(ranks)}
    assert {name: found[name][0] for name in numbers} == pytest.approx(numbers)
    assert found["ordinary_gap"][0] > 0.01


@pytest.mark.parametrize(("leak", "order"), [(0.0, 1), (0.5, 3)])
def test_hopfield_memory__counts_what_followed_the_same_tokens(leak, order):
    """Narrow kernels see equal averages alone: of the last token, or (nearly) of the last three."""
    data = HOPFIELD["chain"](Draw(3, 1), vocabulary=3, length=300)
    found = HOPFIELD["recall"](**data, leak=leak, bandwidth=0.04)["next_token_error"]
    for error, tokens, law in zip(found, data["tokens"], data["law"], strict=True):
        places = [t for t in range(order, 300) if (tokens[t - order : t] == tokens[-order:]).all()]
        counts = np.bincount(tokens[places], minlength=3)
        assert error == pytest.approx((((counts / counts.sum()) - law) ** 2).sum(), abs=1e-3 if order == 1 else 0.05)


@pytest.mark.parametrize("held", [1, 2, 8])
@pytest.mark.parametrize("output", ["one short", "average"])
def test_recovery_behind_gates__is_that_from_the_whole_map(output, held):
    n, d, n_heads, p = 8, 6, 3, 2
    shapes = {"outputs": (n // held, 6), "noise": (n, d), "tokens": (n, d), "gate_weights": (n_heads, d)}
    data = {name: RNG.normal(size=(1, *shape)) for name, shape in (shapes | dict(left=(6, d), right=(d, d))).items()}
    found = IDENTIFIABILITY["recover"](**data, output=output, gates="position", condition=5.0, noise_sd=0.3)
    projection = IDENTIFIABILITY["output_projection"](data["left"], data["right"], n_heads, output, 5.0)[0]
    table = np.zeros((n // held * n_heads * p, n * d))
    for t in range(n):
        for c in range(n_heads * p):
            logit = sum(data["tokens"][0, t] * data["gate_weights"][0, c // p]) / math.sqrt(d)
            table[t // held * n_heads * p + c, t * d : (t + 1) * d] = projection[c] / (1.0 + math.exp(-logit))
    recovered = np.linalg.lstsq(table.T, data["outputs"].ravel() @ table + 0.3 * data["noise"].ravel(), rcond=1e-12)[0]
    assert found["nullity"] == len(table) - np.linalg.matrix_rank(table, tol=1e-9)
    assert found["recovery_error"] == pytest.approx(((recovered - data["outputs"].ravel()) ** 2).mean(), rel=1e-7)


def test_rank__is_not_that_of_rounding():
    sizes, direction = RNG.normal(size=32), RNG.normal(size=16)
    sizes[3] = 1e-6  # its features differ by a millionth of the 2 that they have in common
    after = IDENTIFIABILITY["layer_norm"](np.outer(sizes, direction) + 2.0)[None]
    assert IDENTIFIABILITY["affine_rank"](after) == 1
    assert np.linalg.matrix_rank(after[0], tol=1e-13) > 1  # the control: rounding there is
    after[0, 3, 5] += 1e-6
    assert IDENTIFIABILITY["affine_rank"](after) == 2


@pytest.mark.parametrize("residual", ["none", "plain", "scaled"])
def test_layers__are_those_of_loops(residual):
    n, d, n_heads, p, depth = 5, 4, 2, 2, 2
    tokens, weights = RNG.normal(size=(n, d)), RNG.normal(size=(depth, 4, n_heads, p, d))
    found = IDENTIFIABILITY["descend"](tokens[None], weights[None], residual, "layer_norm")
    for query, key, value, output in weights:
        inputs = [(x - x.mean()) / x.std() for x in tokens]
        added = np.zeros((n, d))
        for h in range(n_heads):
            q, k, v = ([each[h] @ x / math.sqrt(d) for x in inputs] for each in (query, key, value))
            for i in range(n):
                kernel = [math.exp(q[i] @ k[j] / math.sqrt(p)) for j in range(n)]
                added[i] += sum(kernel[j] * v[j] for j in range(n)) / sum(kernel) @ output[h] / math.sqrt(n_heads * p)
        tokens = {"none": added, "plain": tokens + added, "scaled": tokens + added / math.sqrt(depth)}[residual]
    apart = tokens - tokens.mean(axis=0)
    assert found["token_spread"] == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(tokens), rel=1e-9)
    assert found["visible_rank"] == np.linalg.matrix_rank(apart, tol=1e-6 * np.linalg.norm(tokens))


@pytest.mark.parametrize("output", ["full rank", "three short", "average"])
@pytest.mark.parametrize("held", [1, 4])
def test_recovery__errs_as_theory_says(output, held):
    settings = {"output": output, "condition": 4.0, "noise_sd": 0.5}
    found = IDENTIFIABILITY["recover"](**IDENTIFIABILITY["layer"](Draw(400), held=held), **settings)
    theory, errors = IDENTIFIABILITY["recovery_theory"](held=held, **settings), found["recovery_error"]
    assert (found["nullity"] == theory["nullity"]).all()
    assert abs(errors.mean() - theory["recovery_error"]) < 4.0 * errors.std() / math.sqrt(len(errors))


@pytest.mark.parametrize("compression", ["scores", "keys", "stacked"])
def test_errors_of_low_rank__are_those_of_loops(compression):
    rng = np.random.default_rng(4)
    keys, queries, values = rng.normal(size=(2, 9, 4)), 0.7 * rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9, 1))
    found = functions_of("kq-svd")["compress"](keys, queries, values, 2, compression, temperature=0.6)
    for r in range(2):
        errors = []
        for kind in (compression, "scores"):
            scores = keys[r] @ queries[r].T
            nearest = naive.low_rank_scores(keys[r], queries[r], 2, kind)
            weights = [np.array([naive.normalised(np.exp(row / 0.6)) for row in each.T]) for each in (nearest, scores)]
            outputs = [each @ values[r] for each in weights]
            errors.append(np.linalg.norm(outputs[0] - outputs[1]) / np.linalg.norm(outputs[1]))
            if kind == compression:
                missed = np.linalg.norm(nearest - scores) / np.linalg.norm(scores)
                assert found["score_error"][r] == pytest.approx(missed)
        assert found["output_error"][r] == pytest.approx(errors[0])
        assert found["beats_scores"][r] == (compression != "scores" and errors[0] < errors[1])


descent = functions_of("learned-heads")["descent"]
K, OUTPUTS = np.array([[0.4, -0.7, 1.1]]), np.array([[0.8, -0.5, 0.3]])


def test_error_and_gradients_of_learned_heads__are_those_of_simulated_tasks_and_small_steps():
    rng, d, n, noise_sd, many = np.random.default_rng(6), 3, 7, 0.6, 60_000
    z, length = rng.normal(size=n), 1.7
    tokens = rng.normal(size=(many, n, d))
    tokens[:, :, 0] = z  # the first axis is that of the query
    b = rng.normal(size=(many, d)) / np.sqrt(d)
    y = np.einsum("tid,td->ti", tokens, b) + noise_sd * rng.normal(size=(many, n))
    read = sum(o * y @ softmax(k * length * z) for k, o in zip(K[0], OUTPUTS[0], strict=True))
    errors = (read - length * b[:, 0]) ** 2
    (error,), _, _ = descent(K, OUTPUTS, z[None, None], np.array([[length]]), d, noise_sd)
    assert abs(errors.mean() - error) < 4.0 * errors.std() / np.sqrt(many)
    assert abs(errors.mean() - error) < 0.1 * error
    rng = np.random.default_rng(7)
    z, length, step = rng.normal(size=(1, 4, 7)), rng.uniform(1.0, 3.0, size=(1, 4)), 1e-6
    _, pull, turn = descent(K, OUTPUTS, z, length, 3, 0.6)
    for h in range(3):
        shift = step * np.eye(3)[[h]]
        rise = [descent(K, OUTPUTS + s * shift, z, length, 3, 0.6)[0][0] for s in (-1, 1)]
        bend = [descent(K + s * shift, OUTPUTS, z, length, 3, 0.6)[0][0] for s in (-1, 1)]
        assert pull[0, h] == pytest.approx((rise[1] - rise[0]) / (2 * step), rel=1e-5)
        assert turn[0, h] == pytest.approx((bend[1] - bend[0]) / (2 * step), rel=1e-5)


def harmonic(problem, d, u):
    """Mean of the target at a key times that at another one, by shares: Legendre polynomials, written out."""
    shares = TEMPERATURE["PROBLEMS"][problem][1]
    polynomials = [u, None, ((d + 2) * u**3 - 3 * u) / (d - 1)]
    return [(share, p) for share, p in zip(shares, polynomials, strict=False) if share]


@pytest.mark.parametrize("problem", ["one length, degree 1", "one length, degree 3", "Gaussian keys"])
@pytest.mark.parametrize("sharpness", [0.3, 2.0])
def test_risk_of_two_keys__is_a_double_integral(problem, sharpness):
    d, gaussian = 5, problem == "Gaussian keys"
    rule = np.polynomial.hermite_e.hermegauss(150) if gaussian else special.roots_gegenbauer(150, d / 2 - 1)
    places, weights = rule[0], rule[1] / rule[1].sum()
    u, v = places[:, None], places[None]
    first = 1 / (1 + np.exp(sharpness * (v - u)))
    squares = first**2 + (1 - first) ** 2
    if gaussian:
        risk = squares + ((first * u + (1 - first) * v - math.sqrt(d)) ** 2 + (d - 1) * squares) / d
    else:
        risk = squares
        for (share, p), (_, q) in zip(harmonic(problem, d, u), harmonic(problem, d, v), strict=True):
            risk = risk + share * (1 - 2 * (first * p + (1 - first) * q) + squares + 2 * first * (1 - first) * p * q)
    assert TEMPERATURE["exact_risk"](problem, d, 2, sharpness) == pytest.approx(weights @ risk @ weights, rel=1e-5)


@pytest.mark.parametrize("degree", [1, 3])
def test_risk_given_logits__is_that_of_pairs_of_keys(degree):
    places, angles = RNG.uniform(-1, 1, (1, 4)), 2 * np.pi * np.arange(64) / 64
    w = np.exp(2.0 * places[0]) / np.exp(2.0 * places[0]).sum()
    risk = 1.0
    for i, u in enumerate(places[0]):
        risk += w[i] ** 2 - 2 * w[i] * special.eval_legendre(degree, u)
        for j, v in enumerate(places[0]):
            between = u * v + math.sqrt((1 - u * u) * (1 - v * v)) * np.cos(angles)
            risk += w[i] * w[j] * (1.0 if i == j else special.eval_legendre(degree, between).mean())
    assert TEMPERATURE["risk_given_logits"](places, 2.0, f"one length, degree {degree}", 3) == pytest.approx([risk])


@pytest.mark.parametrize(("rule", "kind"), [("YaRN", "yarn"), ("ln n", "log"), ("√ln n", ""), ("s^(2/(d+3))", "")])
def test_factors_of_length__are_those_of_the_papers_here_and_in_the_package(rule, kind):
    factors = {
        "YaRN": [(0.1 * math.log(4) + 1) ** 2, 1.6314, 2.0047],
        "ln n": [14 / 12, 16 / 12, 18 / 12],
        "√ln n": [(14 / 12) ** 0.5, (16 / 12) ** 0.5, 1.5**0.5],
        "s^(2/(d+3))": [4 ** (2 / 11), 16 ** (2 / 11), 64 ** (2 / 11)],
    }[rule]
    for n_keys, factor in zip((16384, 65536, 262144), factors, strict=True):
        assert TEMPERATURE["RULES"][rule](n_keys, n_keys / 4096, 8) == pytest.approx(factor, rel=1e-4)
        if kind:
            settings = {"n_keys": n_keys, "head_dim": 8, "n_features": 16}
            cell = minimal_cell(bandwidth={"kind": kind, "tuned_at": 4096, "value": 2.0}, **settings)
            assert 4.0 / cell.bandwidth**2 == pytest.approx(factor, rel=1e-4)


def test_best_sharpness__is_that_of_the_formula_for_many_keys_and_of_variants():
    formula = (2**20 * 4 * math.gamma(1.5) / math.sqrt(math.pi)) ** (2 / 6)
    assert TEMPERATURE["best_sharpness"]("one length, degree 1", 3, 2**20) == pytest.approx(formula, rel=0.02)
    for (target, signal), found in VARIANTS["BEST"].items():
        best = TEMPERATURE["best_sharpness"](f"one length, {target}", 8, 1024, signal)
        assert found == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("problem", ["one length, degree 3", "Gaussian keys"])
def test_risks_of_drawn_keys__are_those_of_theory(problem):
    known = {"n_keys": 8, "head_dim": 5, "problem": problem}
    rule = {"tuned_at": 4, "rule": "unchanged", "bandwidth": 0.6}
    found = TEMPERATURE["tempered_head"](**TEMPERATURE["keys_along_the_query"](Draw(4000), **known), **known, **rule)
    for name, expected in TEMPERATURE["theory"](**known, **rule).items():
        values = found[name]
        assert abs(values.mean() - expected) < 4.0 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("pair, target, others", [
    ("λ = 0.5", "degree 3", {"gate": 0.6}),
    ("orthogonal, λ = 0.5", "degree 1", {"sink": 0.2}),
    ("cold head", "degree 1", {"signal": 4.0, "sink": 0.5}),
])  # fmt: skip
def test_pair_of_heads__is_that_of_loops(pair, target, others):
    keys = np.random.default_rng(5).standard_normal((5, 3))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    u, v = keys[:, 0], keys[:, 1]
    found = VARIANTS["head_pair"](u[None], v[None], pair=pair, target=target, head_dim=3, **others)
    weight, first, second, query = VARIANTS["PAIRS"][pair]
    signal, degree = others.get("signal", 1.0), int(target[-1])
    w = 0.0
    for share, size, places in ((1.0, first, u), (-weight, second, v if query == "orthogonal" else u)):
        size *= VARIANTS["BEST"][target, signal]
        kernel = np.exp(size * places)
        # The mean of e^{βu} over a sphere of three dimensions is sinh(β)/β.
        null = others.get("sink", 0) * 5 * math.sinh(size) / size
        w = w + others.get("gate", 1.0) * share / (1 - weight) * kernel / (kernel.sum() + null)
    legendre = special.eval_legendre(degree, u)
    # Of a linear target: what lies across both queries averages out.
    both = np.outer(legendre, legendre) if query == "same" else np.outer(u, u) + np.outer(v, v)
    np.fill_diagonal(both, 1.0)
    assert found["pair_risk"] == pytest.approx([w @ w + signal * (1 - 2 * w @ legendre + w @ both @ w)], rel=1e-6)
    assert found["pair_noise"] == pytest.approx([5 * w @ w])


@pytest.mark.parametrize("groups", [1, 4])
def test_noise_of_heads_that_share_keys__is_that_of_many_keys(groups):
    found = VARIANTS["average"](**VARIANTS["shared_keys"](Draw(400), 16, groups, n_keys=2048))["grouped_noise"]
    assert found.mean() == pytest.approx(VARIANTS["many_keys"](16, groups)["grouped_noise"], rel=0.02)
