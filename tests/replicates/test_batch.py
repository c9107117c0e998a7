"""One batch: against naive loops on the same data, and the same bits however the work is shared."""

import naive
import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention import mechanism
from simstudy.data import heads, training
from simstudy.design.settings.cell import N_BLOCKS
from simstudy.replicates import batch as batch_module
from simstudy.replicates.batch import shares_data, simulate_batch
from simstudy.replicates.performance import performance

QUERIES = {"kind": "points", "points": [[0.0], [0.5, -1.0], [2.0, 2.0, 2.0]]}
RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -0.5]}


def ridge(x: np.ndarray) -> float:
    return 2.0 * np.sin((x[0] - 0.5 * x[1]) / np.sqrt(1.25))


def assert_equal(left, right) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize("treatment", ["integrated", "drawn"])
def test_moments__equal_naive_loops_over_the_same_data(logits, treatment):
    cell = minimal_cell(
        logits=logits, noise_treatment=treatment, regression=RIDGE, queries=QUERIES, noise_sd=0.5, n_keys=17,
        query_projections="opposite",
    )  # fmt: skip
    (moments,) = simulate_batch([cell], 2)
    n = cell.simulation.batch_size
    keys, noise = training.draw_keys(cell, 2 * n, n), training.draw_noise(cell, 2 * n, n)
    points = heads.query_points(cell)
    weights = [heads.query_projections(cell), heads.key_projections(cell)]
    errors, products = np.zeros((n, 3, 2)), np.zeros((n, 3, 2, 2))
    for r in range(n):
        for q, x in enumerate(points):
            w = [naive.weights(keys[r].T, x, weights[1][h], weights[0][h], cell.bandwidth, logits) for h in range(2)]
            values = [ridge(k) for k in keys[r].T] + 0.5 * noise[r] * (treatment == "drawn")
            errors[r, q] = [w[h] @ values - ridge(x) for h in range(2)]
            products[r, q] = np.outer(errors[r, q], errors[r, q])
            if treatment == "integrated":
                products[r, q] += [[0.25 * (w[h] @ w[g]) for g in range(2)] for h in range(2)]
    per_block = n // N_BLOCKS
    np.testing.assert_allclose(moments.error_sum, errors.reshape(N_BLOCKS, per_block, 3, 2).sum(1), atol=1e-12)
    packed = products[:, :, *np.triu_indices(2)].reshape(N_BLOCKS, per_block, 3, 3).sum(1)
    np.testing.assert_allclose(moments.product_sum, packed, atol=1e-12)
    assert moments.n_defined.tolist() == [per_block] * N_BLOCKS


def test_shared_data__changes_no_bit():
    """Cells evaluated together, whatever their number of keys, heads or bandwidth, equal each alone."""
    cells = [
        minimal_cell(n_keys=33),
        minimal_cell(n_keys=130, bandwidth=0.4, regression=RIDGE),
        minimal_cell(n_keys=130, n_heads=3, noise_sd=0.1),
        minimal_cell(n_keys=130, bandwidth=0.4, regression=RIDGE, control="expansion"),
        minimal_cell(n_keys=130, arrangement="haar_redrawn", noise_treatment="drawn"),
    ]
    assert len({shares_data(cell) for cell in cells}) == 1
    for cell, together in zip(cells, simulate_batch(cells, 1), strict=True):
        assert_equal(together, simulate_batch([cell], 1)[0])


def test_company_of_a_larger_cell__changes_no_bit(monkeypatch):
    """A cell whose keys fill the memory bound is summed in shorter pieces, so it must not share tasks with others."""
    monkeypatch.setattr(batch_module, "PIECE_BYTES", 3 * 130 * 6 * 8)
    small, large = minimal_cell(n_keys=20, batch_size=128), minimal_cell(n_keys=130, batch_size=128)
    assert shares_data(small) != shares_data(large)


def test_large_cells__share_data_whose_pieces_are_equal_where_they_are_computed():
    """On a CPU both hold one replicate at once; on a GPU they hold 16 and 8, and forests are not computed there."""
    cells = [minimal_cell(n_keys=n_keys, batch_size=256) for n_keys in (400_000, 800_000)]
    forests = [minimal_cell(n_keys=n_keys, batch_size=256, learner="random_forest") for n_keys in (400_000, 800_000)]
    for pair, device, n_groups in ((cells, "cpu", 1), (cells, "cuda", 2), (forests, "cuda", 1)):
        assert len({shares_data(cell, device) for cell in pair}) == n_groups
        lengths = [next(batch_module._pieces(cell, 0, device))[2] for cell in pair]
        assert len(set(lengths)) == n_groups and (lengths == [1, 1]) == (n_groups == 1)


@pytest.mark.parametrize("count", [1, 5])
def test_blocks_evaluated_together__change_no_bit(monkeypatch, count):
    cell = minimal_cell(regression=RIDGE, queries={"kind": "gaussian", "count": count}, batch_size=256)
    (together,) = simulate_batch([cell], 0)
    monkeypatch.setattr(batch_module, "CACHE_BYTES", 1)
    (apart,) = simulate_batch([cell], 0)
    assert_equal(together, apart)


def test_memory_bound__changes_no_bit_but_rounding(monkeypatch):
    cell = minimal_cell(regression=RIDGE, queries=QUERIES, batch_size=64)
    (whole,) = simulate_batch([cell], 0)
    for bound in ("PIECE_BYTES", "CACHE_BYTES"):
        monkeypatch.setattr(batch_module, bound, 1)
    (pieces,) = simulate_batch([cell], 0)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "one"), [("gram", 40 * 3 * 3 * 8), ("keys", 3 * 2 * 500 * 8)], ids=["queries", "keys"]
)
def test_largest_arrays__stay_within_the_memory_bound(monkeypatch, name, one):
    """``one`` is the size of the largest array of a replicate, by its shape."""
    many = {"gram": {"queries": {"kind": "gaussian", "count": 40}, "n_keys": 20}, "keys": {"n_keys": 500}}[name]
    cell = minimal_cell(**many, n_features=5, n_heads=3, head_dim=2, arrangement="haar", batch_size=256)
    sizes, evaluate = [], mechanism.evaluate

    def watched(estimator, bandwidth, inputs, *others):
        found = evaluate(estimator, bandwidth, inputs, *others)
        sizes.append({"gram": found.gram.nbytes, "keys": inputs.keys.nbytes}[name])
        return found

    monkeypatch.setattr("simstudy.attention.nadaraya_watson.evaluate", watched)
    monkeypatch.setattr(batch_module, "PIECE_BYTES", 3 * one)
    monkeypatch.setattr(batch_module, "CACHE_BYTES", 1)
    simulate_batch([cell], 0)
    assert max(sizes) == 3 * one and sum(sizes) == 256 * one


def test_float32__agrees_with_float64():
    settings = {"regression": RIDGE, "queries": QUERIES, "n_keys": 200}
    results = []
    for dtype in ("float64", "float32"):
        (moments,) = simulate_batch([minimal_cell(dtype=dtype, **settings)], 0)
        results.append(performance(moments, np.full(2, 0.5), minimal_cell().statistics).estimate)
    for name in ("mse", "ensemble_variance", "correlation"):
        assert results[1][name] == pytest.approx(results[0][name], rel=1e-5)


def test_redrawn_heads__have_random_indices_and_fixed_heads_have_not():
    for arrangement, random in (("haar_redrawn", True), ("haar", False), ("orthogonal", False)):
        (moments,) = simulate_batch([minimal_cell(arrangement=arrangement)], 0)
        chordal_mcse = performance(moments, np.full(2, 0.5), minimal_cell().statistics).mcse["hdi"][0]
        assert (chordal_mcse > 1e-6) == random


def test_undefined_estimates__are_counted_by_number(monkeypatch):
    original = training.draw_keys

    def broken(cell, first, count):
        keys = original(cell, first, count)
        replicates = first + np.arange(count)
        keys[np.isin(replicates, [33, 50])] = np.nan
        return keys

    monkeypatch.setattr(training, "draw_keys", broken)
    (moments,) = simulate_batch([minimal_cell()], 1)
    assert moments.failed.tolist() == [33, 50]
    assert moments.n_defined.sum() == 30 and np.isfinite(moments.product_sum).all()


def test_replicate_that_raises__is_counted_alone_and_kept_by_number(monkeypatch):
    cell = minimal_cell(arrangement="haar_redrawn")
    (whole,) = simulate_batch([cell], 1)
    first, bad = cell.simulation.batch_size, 5
    drawn = heads.key_projections

    def singular(cell, start=0, count=1):
        if start <= first + bad < start + count:
            raise np.linalg.LinAlgError("SVD did not converge")
        return drawn(cell, start, count)

    monkeypatch.setattr(heads, "key_projections", singular)
    (moments,) = simulate_batch([cell], 1)
    assert moments.failed.tolist() == [first + bad]
    per_block = cell.simulation.batch_size // N_BLOCKS
    touched = bad // per_block
    expected = np.full(N_BLOCKS, per_block)
    expected[touched] -= 1
    assert moments.n_defined.tolist() == expected.tolist()
    others = np.arange(N_BLOCKS) != touched
    np.testing.assert_array_equal(moments.error_sum[others], whole.error_sum[others])


def test_defect_of_the_program__is_not_counted_as_a_failed_replicate(monkeypatch):
    monkeypatch.setattr(mechanism, "nw_moments", lambda *_: [][0])
    with pytest.raises(IndexError):
        simulate_batch([minimal_cell()], 0)
