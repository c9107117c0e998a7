"""Cells whose keys pass in tiles: the same data and the same estimates as with all keys at once."""

from __future__ import annotations

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention import learner_of
from simstudy.data.shared import SharedData
from simstudy.data.training import draw_keys, draw_noise
from simstudy.design.settings import tiling
from simstudy.replicates.batch import simulate_batch

KEYS = {
    "identity": "gaussian",
    "equicorrelated": {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.4},
    "sphere": {"kind": "sphere", "radius": 2.0},
    "student_t": {"kind": "student_t", "df": 5.0},
    "mixture": {"kind": "mixture", "n_components": 3, "separation": 2.0},
}
BASE = {"n_keys": 1100, "noise_sd": 0.5, "regression": {"kind": "linear", "coefficients": [1.0]}}
# Keys that are drawn or weighted together are held at once whatever their number.
TOGETHER = {
    "in time": {"key_distribution": {"kind": "autoregressive", "coefficient": 0.9}},
    "masked": {"mask": "causal"},
    "sparse": {"normaliser": "sparsemax"},
    "fitted": {"combination": {"kind": "fitted", "within": "simplex", "n_validation": 40}},
    "product": {"combination": {"kind": "product"}},
}


@pytest.fixture
def _tiny(monkeypatch):
    monkeypatch.setattr(tiling, "HELD_BYTES", 0)
    monkeypatch.setattr(tiling, "TILE_BYTES", 0)


def estimates(cell):
    return learner_of(cell).evaluate(SharedData(cell, 3, 2))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("noise", [{"kind": "student_t", "df": 5.0}, "gaussian"], ids=["student_t", "gaussian"])
def test_tiles__hold_keys_and_noise_of_the_whole(name, noise, _tiny):
    cell = minimal_cell(n_keys=1100, key_distribution=KEYS[name], noise=noise)
    tiles = list(tiling.tiles_of(cell))
    assert len(tiles) == 3 and tiles[1].key_rows == range(512, 1024)
    for draw in (draw_keys, draw_noise):
        joined = np.concatenate([draw(tile, 3, 1) for tile in tiles], axis=-1)
        np.testing.assert_array_equal(joined, draw(cell, 3, 1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "settings",
    [
        {"noise": {"kind": "heteroscedastic", "strength": 2.0}},
        {"noise_treatment": "drawn"},
        {"control": "expansion"},
        {"arrangement": "haar_redrawn", "key_scale": "normalised"},
    ],
    ids=["integrated", "drawn", "controlled", "redrawn"],
)
def test_estimates_in_tiles__are_those_at_once(settings, dtype, request):
    cell = minimal_cell(**BASE | {"dtype": dtype} | settings)
    whole = estimates(cell)
    request.getfixturevalue("_tiny")
    assert tiling.passes_in_tiles(cell)
    found = estimates(cell)
    tolerance = {"rtol": 0, "atol": 2e-5 if dtype == "float32" else 1e-12}
    for one, other in zip(found[:3], whole[:3], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, **tolerance)
    assert (found.control is None) == (whole.control is None)
    for one, other in zip(found.control or (), whole.control or (), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
    assert not np.array_equal(found.means, whole.means)


@pytest.mark.parametrize("name", TOGETHER)
def test_keys_that_belong_together__are_held_at_once(name, _tiny):
    assert tiling.passes_in_tiles(minimal_cell())
    assert not tiling.passes_in_tiles(minimal_cell(**TOGETHER[name]))


def test_small_cells__are_not_tiled():
    assert not tiling.passes_in_tiles(minimal_cell(n_keys=100_000))


def test_no_array__holds_all_keys(monkeypatch):
    cell = minimal_cell(n_keys=4096, n_features=32, arrangement="haar", batch_size=16, dtype="float32")
    (whole,) = simulate_batch([cell], 0)
    monkeypatch.setattr(tiling, "HELD_BYTES", 0)
    monkeypatch.setattr(tiling, "TILE_BYTES", 1 << 16)
    shapes = []
    original = SharedData.keys
    monkeypatch.setattr(SharedData, "keys", lambda self, n: shapes.append(n) or original(self, n))
    (found,) = simulate_batch([cell], 0)
    assert set(shapes) == {512}
    np.testing.assert_allclose(found.product_sum, whole.product_sum, rtol=2e-5)
