"""Moments of keys that arrive in tiles against the naive ones of all keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import assert_solved, problem

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.tiled import RunningMoments


def in_tiles(given, *cuts):
    """Return what `nw_moments` does, from tiles of keys that end at the cuts."""
    running = RunningMoments(len(given.keys), given.queries, given.bandwidth, given.logits)
    for start, stop in zip((0, *cuts), (*cuts, given.keys.shape[-1]), strict=True):
        running.add(*(array[..., start:stop] for array in (given.keys, given.values, given.variances)))
    return running.means, running.grams, running.log_mass


class Tiled:
    """A problem whose keys pass in tiles."""

    def __init__(self, given, *cuts):
        self.__dict__.update(vars(given))
        self._given, self._cuts = given, cuts

    def moments(self):
        return in_tiles(self._given, *self._cuts)

    def estimates(self):
        return self.moments()[0]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize(("n_queries", "spread"), [(3, 1.0), (17, 1.0), (17, 4.0), (17, 30.0)])
def test_tiles__are_the_formula(n_queries, spread, logits, precision):
    """Few queries, many; so far that no key of a tile has a weight; too far for the fast formula."""
    assert_solved(Tiled(problem((2, n_queries, 3, 5, 150), logits, precision, spread=spread), 13, 14, 100))


def test_tiles__with_queries_for_each_replicate():
    assert_solved(Tiled(problem((3, 17, 2, 2, 150), precision="float32", own_queries=True), 70))


@pytest.mark.parametrize("near_first", [True, False])
def test_tile_of_negligible_keys__takes_the_careful_formula_only_if_it_comes_first(near_first, monkeypatch):
    """Its weights are too small for the fast formula alone, but not beside those of keys that came before."""
    given = problem((1, 16, 2, 4, 150), precision="float32", bandwidth=0.5, spread=0.1)
    given.keys[:] *= np.float32(0.1)
    given.keys[..., slice(75, None) if near_first else slice(75)] += np.float32(2.8)
    calls, careful = [], few_queries.moments
    monkeypatch.setattr(few_queries, "moments", lambda *given: calls.append(given) or careful(*given))
    monkeypatch.setattr(many_queries, "BUSY_LANES", 0.0)
    assert_solved(Tiled(given, 75))
    assert bool(calls) != near_first


@pytest.mark.parametrize("distance", [10.0, 14.0, 17.0, 40.0])
def test_later_tile_without_any_weight__changes_nothing(distance):
    given = problem((1, 16, 2, 2, 128), precision="float32", bandwidth=1.0)
    given.queries[:], given.keys[:] = 0.0, np.float32(0.3) * given.keys
    # On both sides, so that the centre is no nearer to them.
    given.keys[..., 64::2] += np.float32(distance)
    given.keys[..., 65::2] -= np.float32(distance)
    near = replace(given, keys=given.keys[..., :64], values=given.values[:, :64], variances=given.variances[:, :64])
    for all_keys, of_near in zip(in_tiles(given, 64), near.moments(), strict=False):
        np.testing.assert_allclose(all_keys, of_near, rtol=1e-5)


def test_tile_that_is_forgotten__would_be_seen():
    given = problem((1, 4, 2, 2, 60))
    whole = given.moments()[0]
    np.testing.assert_allclose(in_tiles(given, 30)[0], whole, rtol=0, atol=1e-13)
    half = replace(given, keys=given.keys[..., :30], values=given.values[:, :30], variances=given.variances[:, :30])
    assert np.abs(in_tiles(half, 7)[0] - whole).max() > 1e-2


def test_undefined_key__spreads_from_its_tile():
    given = problem((2, 17, 2, 2, 60))
    given.keys[1, 0, 0, 40] = np.nan
    means, grams, logs = in_tiles(given, 30)
    assert np.isfinite(means[0]).all() and np.isnan(means[1, :, 0]).all() and np.isfinite(means[1, :, 1]).all()
    assert np.isnan(grams[1, :, 0]).all() and np.isnan(logs[1, :, 0]).all()
