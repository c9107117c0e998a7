"""Colonies against their rules written out ant by ant."""

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from builders import Draw

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "published-colonies" / "functions.py"))


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


def correlation_of(rows, signal):
    rows = [row for row, known in zip(rows, signal, strict=True) if np.count_nonzero(known) > 1]
    return np.mean([np.corrcoef(one, other)[0, 1] for one, other in itertools.combinations(rows, 2)])


@pytest.mark.parametrize(("exploration", "quorum", "n_steps"), [(0.2, 20.0, 9), (0.8, 4.0, 12), (0.5, 20.0, 2)])
def test_colony__is_that_of_ants_one_by_one(exploration, quorum, n_steps):
    known = {"sites": 4, "gap": 4.0, "exploration": exploration, "n_steps": n_steps, "quorum": quorum}
    data = STUDY["colony"](Draw(6), n_ants=6, **known)
    found = STUDY["correlate"](**data)
    for r, rng in enumerate(Draw(6).generators()):
        estimates, signal = colony_of(rng, 6, **known)
        np.testing.assert_allclose(data["estimates"][r], estimates, rtol=1e-12)
        for name, rows in (("site", estimates), ("error", estimates - signal)):
            assert found[f"{name}_correlation"][r] == pytest.approx(correlation_of(rows, signal), rel=1e-10)


@pytest.mark.parametrize("each_ant", [False, True])
def test_waves__have_the_means_of_ants_that_choose_one_by_one(each_ant):
    quality, heuristic, ends = np.array([10.0, 8.0, 3.0]), np.array([1.0, 0.9, 0.5]), ([], [])
    rng = np.random.default_rng(7)
    for _ in range(3000):
        trail = np.ones(3)
        fitness = STUDY["run_waves"](rng, trail, quality, heuristic, 4, 3, 8.0, 0.3, each_ant)
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
    """With one ant and no error the rules of part III can be followed by hand."""
    found = STUDY["pass_on"](Draw(3), 1, n_generations=8, n_waves=1, generation_rate=0.9)["fitness"]
    heuristic = STUDY["SITES"] / 10
    for r, rng in enumerate(Draw(3).generators()):
        for run in range(2):
            trail, fitness = np.ones(5), []
            for _ in range(8):
                now = STUDY["run_waves"](rng, trail, STUDY["SITES"], heuristic, 1, 1, 0.0, 0.3, False)
                fitness.append(now)
                gain = now - np.mean(fitness[-6:])
                trail = np.maximum(0.1 * trail + 0.5 * gain * trail / trail.sum(), 0.01)
            np.testing.assert_allclose(found[r, run], fitness)


def test_first_wave__decides_as_often_as_theory_says():
    found = STUDY["recruit"](Draw(8000), 0.4, 1, noise_sd=4.0)["correct"]
    expected = STUDY["first_wave"](0.4, noise_sd=4.0)["acar_share"]
    assert abs(found.mean() - expected) < 4 * found.std() / math.sqrt(len(found))


def test_variances_over_runs__are_those_of_two():
    fitness = np.random.default_rng(2).random((3, 2, 9))
    np.testing.assert_allclose(STUDY["spread"](fitness)["gacl_variance"], fitness.var(axis=1, ddof=1).mean(axis=1))
