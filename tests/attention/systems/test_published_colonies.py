"""Published colonies: against their rules written out ant by ant, and against what symmetry says of errors."""

import itertools
import math

import numpy as np
import pytest
from builders import minimal_cell, numbers_of

from simstudy.attention.members import measure
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.shared import SharedData


def colony_of(shared, cell, r):
    """Estimates (ant, site), whether each ant saw each site, decision and steps: one random number after the other."""
    instance, n_ants, n_steps = cell.instance, cell.heads.n_heads, cell.data.n_keys
    luck = uniforms(cell.data_id, Role.LEARNER, shared.first + r, 1, n_ants * n_steps, 2)[0]
    noise = iter(shared.normals(n_ants * n_steps, 1)[r, 0])
    luck = iter(luck.T)
    sites = range(instance.sites)
    quality = [10 - instance.gap * s / (instance.sites - 1) for s in sites]
    seen = [[[] for _ in sites] for _ in range(n_ants)]
    pheromone, recruited = [0.0] * instance.sites, [0.0] * instance.sites
    step = 0
    while step < n_steps:
        step += 1
        for ant in range(n_ants):
            explores, where = next(luck)
            weights = [1.0] * instance.sites
            if explores >= instance.exploration and sum(pheromone) > 0:
                weights = pheromone
            s = next(s for s in sites if where <= sum(weights[: s + 1]) / sum(weights) or s == sites[-1])
            seen[ant][s].append(quality[s] + cell.data.noise_sd * next(noise))
            recruited[s] += instance.enthusiasm * max(np.mean(seen[ant][s]) - np.mean(quality), 0)
        pheromone = [
            (1 - instance.evaporation) * p + instance.reinforcement * x
            for p, x in zip(pheromone, recruited, strict=True)
        ]
        decided = recruited.index(max(recruited))
        if max(recruited) > instance.quorum:
            break
        recruited = [0.8 * x for x in recruited]
    estimates = [[np.mean(x) if x else 0.0 for x in row] for row in seen]
    signal = [[quality[s] if x else 0.0 for s, x in enumerate(row)] for row in seen]
    return np.array(estimates), np.array(signal), decided, step


def correlation_of(rows, signal):
    rows = [row for row, known in zip(rows, signal, strict=True) if np.count_nonzero(known) > 1]
    return np.mean([np.corrcoef(one, other)[0, 1] for one, other in itertools.combinations(rows, 2)])


@pytest.mark.parametrize(
    ("parameters", "n_keys"),
    [
        ({"exploration": 0.2, "sites": 4, "gap": 4.0}, 9),
        ({"exploration": 0.8, "sites": 3, "quorum": 4.0}, 12),
        ({"exploration": 0.5, "sites": 3}, 2),  # some ants see one site
    ],
)
def test_colony__is_that_of_ants_one_by_one(parameters, n_keys):
    cell = minimal_cell(
        instance={"kind": "published_colony"} | parameters, n_heads=6, n_keys=n_keys, noise_sd=2.0, head_dim=1
    )
    shared = SharedData(cell, 5, 8)
    found = measure(cell, shared)
    steps = set()
    for r in range(8):
        estimates, signal, decided, step = colony_of(shared, cell, r)
        expected = (estimates, signal, estimates - signal)
        for name, rows in zip(("site_correlation", "signal_correlation", "error_correlation"), expected, strict=True):
            assert found[name][r] == pytest.approx(correlation_of(rows, signal), rel=1e-10)
        assert (found["best_site_share"][r], found["colony_steps"][r]) == (decided == 0, step)
        steps.add(step)
    assert len(steps) > 1 or steps == {n_keys}


def waves_of(luck, noise, quality, power, evaporation, spread, each_ant, trail):
    """Trail (site,) after waves of ants (wave, ant), and the mean quality that the last ants observe, in loops."""
    fitness = 0.0
    for choices, errors in zip(luck, noise, strict=True):
        pull = [t * (q / max(quality)) ** power for t, q in zip(trail, quality, strict=True)]
        cumulative = np.cumsum(pull) / sum(pull)
        went = [next(s for s in range(len(quality)) if where <= cumulative[s] + 1e-15) for where in choices]
        laid = []
        for s, q in enumerate(quality):
            ants = went.count(s)
            seen = [max(q + spread * errors[s], 0.0)] * ants
            if each_ant:  # the sum of independent errors, by its standard deviation
                seen = [q + spread * errors[s] / math.sqrt(ants)] * ants if ants else []
            laid.append(sum(seen))
        floor = 0.0 if each_ant else 0.01
        trail = [max((1 - evaporation) * t + 0.5 * x, floor) for t, x in zip(trail, laid, strict=True)]
        fitness = sum(laid) / len(choices)
    return trail, fitness


@pytest.mark.parametrize(("observation", "evaporation"), [("wave", 0.1), ("wave", 1.0), ("ant", 0.1)])
def test_acar__is_that_of_waves_one_by_one(observation, evaporation):
    instance = {
        "kind": "acar",
        "weakness": 0.3,
        "evaporation": evaporation,
        "heuristic": 0.5,
        "observation": observation,
    }
    cell = minimal_cell(instance=instance, n_heads=3, n_keys=6, noise_sd=8.0)
    shared = SharedData(cell, 3, 24)
    found = measure(cell, shared)
    luck = uniforms(cell.data_id, Role.LEARNER, 3, 24, 18, 1)[:, 0].reshape(24, 6, 3)
    noise = shared.normals(6, 2)
    trails = [
        waves_of(luck[r], noise[r].T, [10, 8.5], 0.5, evaporation, 8.0, observation == "ant", [1, 1])[0]
        for r in range(24)
    ]
    correct = np.array([a >= b for a, b in trails], float)
    assert 0 < correct.mean() < 1
    np.testing.assert_array_equal(found["acar_share"], correct)
    first = math.sqrt(10) / (math.sqrt(10) + math.sqrt(8.5)) - 0.5
    for name, g in (("acar_bound_excess", 0.3), ("acar_first_bound_excess", first)):
        np.testing.assert_allclose(found[name], correct - (1 - math.exp(-(g**2) * 6 / 2)))


def boosted(points, labels, at, n_rounds):
    """Stumps of AdaBoost and their weights as textbooks have them: every threshold of every feature in turn."""
    shares, stumps = np.full(len(labels), 1 / len(labels)), []
    for _ in range(n_rounds):
        options = []
        for j in range(points.shape[1]):
            for cut in np.quantile(points[:, j], np.linspace(0, 1, min(50, len(labels)))):
                for way in (1, -1):
                    says = np.where(points[:, j] <= cut, way, -way)
                    options.append((shares[says != labels].sum(), j, cut, way))
        error, j, cut, way = min(options, key=lambda option: option[0])
        weight = math.log((1 - error) / error) / 2
        shares = shares * np.exp(-weight * labels * np.where(points[:, j] <= cut, way, -way))
        shares /= shares.sum()
        stumps.append((weight, np.where(at[:, j] <= cut, way, -way)))
    return stumps


def test_boosting__is_that_of_stumps_one_by_one_and_its_coded_vote_counts_stumps_alike():
    instance = {"kind": "boosting_and_ants", "label_noise": 0.2, "colonies": 2}
    cell = minimal_cell(instance=instance, n_heads=10, n_keys=60, n_features=4)
    shared = SharedData(cell, 1, 4)
    found = measure(cell, shared)
    for r, points in enumerate(shared.normals(560, 4).swapaxes(1, 2)):
        labels = np.array([1 if x[0] + x[1] * x[2] + x[2] ** 2 / 2 >= 0 else -1 for x in points])
        flipped = labels[:60] * np.where(np.arange(60) < 12, -1, 1)
        stumps = boosted(points[:60], flipped, points[60:], 10)
        weighted, counted = sum(w * v for w, v in stumps), sum(v for _, v in stumps)
        assert found["weighted_accuracy"][r] == pytest.approx(np.mean(np.sign(weighted) == labels[60:]))
        assert found["coded_accuracy"][r] == pytest.approx(np.mean(np.sign(counted) == labels[60:]))
        assert (np.sign(counted) == 0).any()
    luck = uniforms(cell.data_id, Role.LEARNER, 1, 4, 30, 8).reshape(4, 8, 2, 15).transpose(0, 2, 3, 1)
    noise = normals(cell.data_id, Role.NOISE, 1, 4, 30, 2).reshape(4, 2, 2, 15).transpose(0, 2, 3, 1)
    for r in range(4):
        ends = [waves_of(luck[r, c], noise[r, c], [10, 9], 1, 0.1, 2.4, False, [1, 1])[0] for c in range(2)]
        assert found["ants_share"][r] == np.mean([a >= b for a, b in ends])
        assert found["ants_less_coded"][r] == found["ants_share"][r] - found["coded_accuracy"][r]


def test_generations__are_those_of_waves_with_a_scaled_trail_between():
    instance = {"kind": "gacl", "generations": 20, "waves": 1, "generation_rate": 0.9, "ants": 7}
    cell = minimal_cell(instance=instance, noise_sd=8.0)
    shared = SharedData(cell, 2, 12)
    found, quality = measure(cell, shared), [10, 7, 5, 4, 3]
    drawn = shared.normals(20, 10)
    for r in range(12):
        every = uniforms(cell.data_id, Role.LEARNER, 2 + r, 1, 20 * 128, 2)
        runs = []
        for run in range(2):
            trail, fitness = [1.0] * 5, []
            for g in range(20):
                luck = every[0, run, 128 * g : 128 * g + 7]
                noise = drawn[r, 5 * run : 5 * run + 5, g : g + 1].T
                trail, now = waves_of(luck[None], noise, quality, 1, 0.3, 8.0, False, trail)
                fitness.append(now)
                gain = now - np.mean(fitness[-6:])
                trail = [max(0.1 * t + 0.5 * gain * t / sum(trail), 0.01) for t in trail]
            runs.append(np.array(fitness))
        scaled = [(run.max() - run) / (run.max() - run.min()) for run in runs]
        for name, (one, other) in (("gacl_variance", runs), ("scaled_gacl_variance", scaled)):
            assert found[name][r] == pytest.approx(np.var([one, other], axis=0, ddof=1).mean())
        assert found["gacl_fitness"][r] == pytest.approx(np.mean([run[-6:] for run in runs]))


def test_runs_that_never_change__are_scaled_to_one_half():
    instance = {"kind": "gacl", "generations": 6, "waves": 40, "ants": 1}
    cell = minimal_cell(instance=instance, noise_sd=0.0)
    found = measure(cell, SharedData(cell, 0, 64))
    settled = found["gacl_variance"] == 0
    assert settled.any() and (found["scaled_gacl_variance"][settled] == 0).all()


@pytest.mark.parametrize(("n_ants", "spread"), [(2, 8.0), (5, 3.0)])
def test_first_wave__decides_as_the_formula_says(n_ants, spread):
    cell = minimal_cell(
        instance={"kind": "acar", "weakness": 0.6, "heuristic": 2.0}, n_heads=n_ants, n_keys=1, noise_sd=spread
    )
    formula = numbers_of(cell)["acar_share"]
    found = measure(cell, SharedData(cell, 0, 40_000))["acar_share"]
    assert found.mean() == pytest.approx(formula, abs=4 * found.std() / 200)
    later = minimal_cell(instance={"kind": "acar"}, n_heads=n_ants, n_keys=2, noise_sd=spread)
    assert not numbers_of(later)
