"""Functions of studies about tickets, colonies and kernels, numbers that claims state, and the page of answers."""

import itertools
import math
import runpy
import shutil
import tomllib

import numpy as np
import pytest
from builders import Draw, functions_of
from commands import ROOT
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gamma

from simstudy.theory import averaged_noise_ratio

ANSWERS = runpy.run_path(str(ROOT / "designs" / "answers.py"))
STATED = ("sentence", "answer", "condition", "study", "claim", "words")
TICKETS = functions_of("lottery-tickets")
RNG = np.random.default_rng(5)
COLONIES = functions_of("published-colonies")


def test_page__is_that_of_its_numbers_and_these_are_of_the_claims_that_the_sentences_name():
    kept = ANSWERS["read"]()
    assert [{name: row[name] for name in STATED} for row in kept] == [*ANSWERS["rows"]()]
    assert ANSWERS["BEGIN"] + ANSWERS["page"](kept) + ANSWERS["END"] in (ROOT / "designs" / "README.md").read_text()
    assert 11 <= len({row["sentence"] for row in kept}) <= 20
    for row in kept:
        claims = tomllib.loads((ROOT / "designs" / row["study"] / "design.toml").read_text())["claims"]
        assert row["verdict"] == claims[row["claim"]].get("expected", "supported"), row["claim"]
        assert not (row["error"] and claims[row["claim"]].get("these_draws")), row["claim"]
    for given, told in {("0.123456", "0.00789"): "0.1235 ± 0.0079", ("123.4", "15"): "123 ± 15"}.items():
        assert ANSWERS["number"](*given) == told  # two digits of its error
    assert ANSWERS["number"]("4e-16", "1e-17") == "4e-16"


def test_answers__stay_where_a_study_was_not_run(tmp_path, monkeypatch, capsys):
    script, _ = (shutil.copy(ROOT / "designs" / name, tmp_path) for name in ("answers.py", "abstracts.toml"))
    monkeypatch.setattr("sys.argv", [script, str(tmp_path / "outputs")])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(script, run_name="__main__")
    assert "outputs: no run of identity, " in capsys.readouterr().err and not (tmp_path / "answers.csv").exists()


def nearest(numbers, target):
    subsets = (math.fsum(s) for size in range(len(numbers) + 1) for s in itertools.combinations(numbers, size))
    return min(subsets, key=lambda total: abs(total - target))


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_nearest_subset_sums__are_the_nearest_of_all(count):
    targets = np.array([0.0, 0.3, -1.2, 50.0, -50.0])
    numbers = RNG.uniform(-1.0, 1.0, (count, 5))
    expected = [nearest(column, target) for column, target in zip(numbers.T, targets, strict=True)]
    np.testing.assert_allclose(TICKETS["nearest_subset_sums"](numbers, targets), expected, atol=1e-12)


def test_needed_width_and_best_average__are_those_of_all_subsets():
    numbers, targets = RNG.uniform(-1.0, 1.0, (32, 6)), RNG.uniform(-0.1, 0.1, 6)
    missed = [max(abs(nearest(x[:k], t) - t) for x, t in zip(numbers.T, targets, strict=True)) for k in range(2, 12)]
    first = next(k for k, error in enumerate(missed, 2) if error <= 0.02)
    assert first > 4
    assert TICKETS["mask_heads"](targets, numbers, 0.02, n_features=3) == {"needed_width": 3 * first}
    assert TICKETS["mask_heads"](targets + 99.0, numbers, 0.02, n_features=1) == {"needed_width": 32}
    errors = RNG.normal(size=6)
    means = [abs(np.mean(each)) for size in range(1, 7) for each in itertools.combinations(errors, size)]
    expected = {"log_average_error": math.log(abs(errors.mean())), "log_mask_error": math.log(min(means))}
    assert TICKETS["choose_heads"](errors) == pytest.approx(expected)


def test_last_layer__is_that_of_loops():
    tokens, targets, numbers = RNG.normal(size=(5, 3)), RNG.uniform(-0.5, 0.5, 18), RNG.uniform(-1.0, 1.0, (5, 18))
    ends = []
    for entries in (targets, [nearest(x, t) for x, t in zip(numbers.T, targets, strict=True)]):
        w, v = np.reshape(entries, (2, 3, 3))
        ends.append([])
        for x in tokens:
            kernel = [math.exp(x @ w @ key / 0.25) for key in tokens]
            state = x + sum(k * (key @ v) for k, key in zip(kernel, tokens, strict=True)) / sum(kernel)
            ends[-1].append((state - state.mean()) / state.std())
    found = TICKETS["mask_stack"](tokens, targets, numbers, layers=1, normalisation="layer_norm")
    assert found["log_stack_error"] == pytest.approx(math.log(np.abs(np.subtract(*ends)).max()), rel=1e-9)


def test_rates__are_those_of_theory_and_of_the_width_those_at_which_the_mean_of_the_largest_need_grows():
    """By summing over numbers k and places z of a target the chance that none of 2^k sums is within 10^-4."""
    fall = [TICKETS["nearest_sum_theory"](4 * k, n_features=4)["log_entry_error"] for k in (10**6, 10**6 + 1)]
    assert TICKETS["nearest_sum_rate"](4) == pytest.approx((fall[1] - fall[0]) / 4, rel=1e-5)
    assert TICKETS["needed_width_rate"](2, 10**300, 10**9) == pytest.approx(2 / math.log(2), rel=1e-3)
    normal = np.exp(-0.5 * np.linspace(-12.0, 12.0, 2001) ** 2) / math.sqrt(2.0 * math.pi)
    missed = [normal @ np.exp(-2e-4 * 2.0**k * normal / math.sqrt(k / 36.0)) * 0.012 for k in range(2, 33)]
    few, many = (sum(1.0 - (1.0 - np.array(missed)) ** (8 * heads)) for heads in (16, 64))
    assert TICKETS["needed_width_rate"](2, 32, 19) == pytest.approx(2 * (many - few) / math.log(4), rel=0.03)


def test_error_of_a_head__is_that_of_loops():
    tokens, targets, numbers = RNG.normal(size=(5, 2)), RNG.uniform(-0.5, 0.5, 6), RNG.uniform(-1.0, 1.0, (5, 6))
    masked, outputs = [nearest(x, t) for x, t in zip(numbers.T, targets, strict=True)], []
    for entries in (targets, masked):
        matrix = np.reshape(entries, (2, 3))
        kernels = [[math.exp(x @ matrix[:, :2] @ key) for key in tokens] for x in tokens]
        outputs.append([np.average(tokens @ matrix[:, 2], weights=each) for each in kernels])
    found = TICKETS["mask_head"](tokens, targets, numbers)
    assert found["log_entry_error"] == pytest.approx(np.log(np.abs(masked - targets)).mean())
    assert found["log_output_error"] == pytest.approx(math.log(np.abs(np.subtract(*outputs)).max()))


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_tuned_risk_has_the_constants_that_are_integrals(p, power):
    surface = 2 * np.pi ** (p / 2) / gamma(p / 2)

    def integral(exponent, moment):
        return surface * quad(lambda u: (1 - u**2) ** exponent * u ** (p - 1 + moment), 0, 1)[0]

    mass = integral(power, 0)
    second_moment, roughness = integral(power, 2) / p / mass, integral(2 * power, 0) / mass**2
    ratio = ((4 * np.pi) ** -p / (second_moment**p * roughness**2)) ** (2 / (p + 4))
    assert functions_of("compact-kernels")["tuned_risk_ratio"](p, power) == pytest.approx(ratio, rel=1e-10)


@pytest.mark.parametrize("bias_rate", [0.5, 2.0])
def test_limiting_slope__is_that_of_the_balance_at_enormous_n(bias_rate):
    """Squared bias exp(-g p) against the variance (p/D) L^p / n of averaged heads, n given by its logarithm."""
    bandwidth, scale, total_dim, limiting_slope = 0.7, 0.5, 24, functions_of("scaling-law")["limiting_slope"]

    def log_variance_fall(p):
        inflation = np.log(averaged_noise_ratio(np.zeros(1), bandwidth, scale))
        return p * inflation + np.log1p(p * inflation) - np.log(total_dim)

    def optimum(log_n):
        def gap(p):
            return np.log(bias_rate) - bias_rate * p - log_variance_fall(p) + log_n

        return brentq(gap, 1e-6, 1e6)

    slope = (optimum(1.01e5) - optimum(1e5)) / 1e3
    assert limiting_slope(bandwidth, scale, bias_rate) == pytest.approx(slope, rel=1e-3)
    # The controls: other queries, and common sizes, which are far from the limit.
    assert abs(limiting_slope(bandwidth, 1.0, bias_rate) / slope - 1) > 0.01
    assert optimum(12.0) - optimum(11.0) < 0.97 * slope


def test_fibonacci_learners__tend_to_the_cube_of_the_golden_ratio():
    learners = functions_of("weighting")["fibonacci_learners"]
    assert learners(2) == 2 and learners(3) == pytest.approx(16 / 6)
    assert learners(200) == pytest.approx(((1 + 5**0.5) / 2) ** 3, rel=1e-12)


def colony_of(rng, n_ants, sites, gap, exploration, n_steps, quorum):
    """Estimates (ant, site), and the same without noise: one random number after the other."""
    quality = [10 - gap * s / (sites - 1) for s in range(sites)]
    seen = [[[] for _ in quality] for _ in range(n_ants)]
    pheromone, recruited = [0.0] * sites, [0.0] * sites
    steps = 0
    while steps < n_steps:
        steps += 1
        for ant in range(n_ants):
            weights = [1.0] * sites
            if rng.random() >= exploration and sum(pheromone) > 0:
                weights = pheromone
            where = rng.random()
            s = next(s for s in range(sites) if where <= sum(weights[: s + 1]) / sum(weights) or s == sites - 1)
            seen[ant][s].append(quality[s] + 2.0 * rng.standard_normal())
            recruited[s] += 0.2 * max(np.mean(seen[ant][s]) - np.mean(quality), 0)
        pheromone = [0.95 * p + 0.1 * x for p, x in zip(pheromone, recruited, strict=True)]
        if max(recruited) > quorum:
            break
        recruited = [0.8 * x for x in recruited]
    estimates = [[np.mean(x) if x else 0.0 for x in row] for row in seen]
    return np.array(estimates), np.where([[bool(x) for x in row] for row in seen], quality, 0.0)


@pytest.mark.parametrize(("exploration", "quorum", "n_steps"), [(0.2, 20.0, 9), (0.8, 4.0, 12), (0.5, 20.0, 2)])
def test_colony__is_that_of_ants_one_by_one(exploration, quorum, n_steps):
    known = {"sites": 4, "gap": 4.0, "exploration": exploration, "n_steps": n_steps, "quorum": quorum}
    data = COLONIES["colony"](Draw(6), n_ants=6, **known)
    found = COLONIES["correlate"](**data)
    for r, rng in enumerate(Draw(6).generators()):
        estimates, signal = colony_of(rng, 6, **known)
        np.testing.assert_allclose(data["estimates"][r], estimates, rtol=1e-12)
        for name, rows in (("site", estimates), ("error", estimates - signal)):
            kept = [row for row, known in zip(rows, signal, strict=True) if np.count_nonzero(known) > 1]
            each = [np.corrcoef(one, other)[0, 1] for one, other in itertools.combinations(kept, 2)]
            assert found[f"{name}_correlation"][r] == pytest.approx(np.mean(each), rel=1e-10)


@pytest.mark.parametrize("each_ant", [False, True])
def test_waves__have_the_means_of_ants_that_choose_one_by_one(each_ant):
    quality, heuristic, ends = np.array([10.0, 8.0, 3.0]), np.array([1.0, 0.9, 0.5]), ([], [])
    rng = np.random.default_rng(7)
    for _ in range(3000):
        trail = np.ones(3)
        fitness = COLONIES["run_waves"](rng, trail, quality, heuristic, 4, 3, 8.0, 0.3, each_ant)
        ends[0].append([*trail, fitness, trail.argmax() == 0])
        trail = np.ones(3)
        for _ in range(4):
            went = rng.choice(3, size=3, p=trail * heuristic / (trail * heuristic).sum())
            errors, laid = 8.0 * rng.standard_normal(3), np.zeros(3)
            for s in went:
                if each_ant:
                    laid[s] += quality[s] + 8.0 * rng.standard_normal()
                else:
                    laid[s] += max(quality[s] + errors[s], 0.0)
            trail = np.maximum(0.7 * trail + 0.5 * laid, 0.0 if each_ant else 0.01)
            if not trail.any():
                trail[0] = 1e-300
        ends[1].append([*trail, laid.sum() / 3, trail.argmax() == 0])
    (one, other), n = (np.array(each, float) for each in ends), 3000
    assert (np.abs(one.mean(0) - other.mean(0)) < 4 * np.hypot(one.std(0), other.std(0)) / math.sqrt(n)).all()
    assert np.abs(one.std(0) / other.std(0) - 1).max() < 0.1


def test_generations__are_scaled_between_by_their_last_six():
    found = COLONIES["pass_on"](Draw(3), 1, n_generations=8, n_waves=1, generation_rate=0.9)["fitness"]
    heuristic = COLONIES["SITES"] / 10
    for r, rng in enumerate(Draw(3).generators()):
        for run in range(2):
            trail, fitness = np.ones(5), []
            for _ in range(8):
                now = COLONIES["run_waves"](rng, trail, COLONIES["SITES"], heuristic, 1, 1, 0.0, 0.3, False)
                fitness.append(now)
                trail = np.maximum(0.1 * trail + 0.5 * (now - np.mean(fitness[-6:])) * trail / trail.sum(), 0.01)
            np.testing.assert_allclose(found[r, run], fitness)


def test_first_wave__decides_as_often_as_theory_says_and_variances_over_runs_are_those_of_two():
    found = COLONIES["recruit"](Draw(8000), 0.4, 1, noise_sd=4.0)["correct"]
    expected = COLONIES["first_wave"](0.4, noise_sd=4.0)["acar_share"]
    assert abs(found.mean() - expected) < 4 * found.std() / math.sqrt(len(found))
    fitness = np.random.default_rng(2).random((3, 2, 9))
    np.testing.assert_allclose(COLONIES["spread"](fitness)["gacl_variance"], fitness.var(axis=1, ddof=1).mean(axis=1))


def test_waves_that_heads_know__have_variance_1():
    rows, every, wave = RNG.normal(size=(1000, 4)), np.eye(1000), functions_of("informed-heads")["wave"]
    gain = wave(rows, rows, 0 * every, every, 0.0, RNG.normal(size=(4, 99)), 2, 2, 1.0, 0.3, share=0.5)["gain"]
    assert gain == pytest.approx(1.0, abs=0.1)
