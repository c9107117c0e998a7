"""Ant colonies as the code of their authors has them, to judge the numbers that they print.

The models are those of Fokoué, Babbitt and Levental: part I (arXiv 2603.20328), with their repository IsomorphismSim.
Facts are taken from it, code is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.instances import measure
from simstudy.data.addresses import Role, uniforms
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.published_colonies import PublishedColonyInstance
from simstudy.kernels.colonies import run_colonies

Array = NDArray[np.float64]

# Index legend: r replicate, t step, a ant, s site.


@measure.register
def decide_for_a_site(instance: PublishedColonyInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Correlations of n_heads ants after at most n_keys steps, and what their colony decides."""
    n_ants, n_sites, draws = cell.heads.n_heads, instance.sites, cell.data.n_keys * cell.heads.n_heads
    qualities = 10.0 - instance.gap * np.linspace(0.0, 1.0, n_sites)
    rates = np.array([
        instance.exploration, instance.enthusiasm, qualities.mean(), instance.reinforcement, instance.evaporation,
        instance.quorum,
    ])  # fmt: skip
    luck = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, draws, 2)
    noise = cell.data.noise_sd * shared.normals(draws, 1)[:, 0]
    visits, means = np.zeros((2, shared.count, n_ants, n_sites))
    state = np.zeros((2, shared.count, n_sites))
    ended = np.zeros((shared.count, 2), np.int64)
    run_colonies(luck, noise, qualities, rates, visits, means, *state, np.zeros(n_sites), ended)
    signal = np.where(visits > 0, qualities, 0.0)
    kept = (visits > 0).sum(axis=2) > 1
    return {
        "site_correlation": _mean_correlation(means, kept),
        "signal_correlation": _mean_correlation(signal, kept),
        "error_correlation": _mean_correlation(means - signal, kept),
        "best_site_share": (ended[:, 0] == 0).astype(float),
        "colony_steps": ended[:, 1].astype(float),
    }


def _mean_correlation(rows: Array, kept: NDArray[np.bool_]) -> Array:
    """Mean correlation over sites of all pairs of rows (r, a, s) that are kept (r, a); NaN if fewer than two are."""
    apart = (rows - rows.mean(axis=2, keepdims=True)) * kept[:, :, None]
    sizes = np.linalg.norm(apart, axis=2, keepdims=True)
    units = np.divide(apart, sizes, out=np.zeros_like(apart), where=sizes > 0.0)
    n = kept.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((units.sum(axis=1) ** 2).sum(axis=1) - n) / (n * (n - 1.0)))
