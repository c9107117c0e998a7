"""Published colonies: against their rules written out ant by ant, and against what symmetry says of errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention.instances import measure
from simstudy.data.addresses import Role, uniforms
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
    [({"exploration": 0.2, "sites": 4, "gap": 4.0}, 9), ({"exploration": 0.8, "sites": 3, "quorum": 4.0}, 12)],
)
def test_colony__is_that_of_ants_one_by_one(parameters, n_keys):
    cell = minimal_cell(
        instance={"kind": "published_colony"} | parameters, n_heads=6, n_keys=n_keys, noise_sd=2.0, head_dim=1
    )
    shared = SharedData(cell, 5, 8)
    found = measure(cell.instance, cell, shared)
    steps = set()
    for r in range(8):
        estimates, signal, decided, step = colony_of(shared, cell, r)
        expected = (estimates, signal, estimates - signal)
        for name, rows in zip(("site_correlation", "signal_correlation", "error_correlation"), expected, strict=True):
            assert found[name][r] == pytest.approx(correlation_of(rows, signal), rel=1e-10)
        assert (found["best_site_share"][r], found["colony_steps"][r]) == (decided == 0, step)
        steps.add(step)
    assert len(steps) > 1 or steps == {n_keys}
