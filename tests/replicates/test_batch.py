"""One batch: against naive loops on the same data, the same bits however the work is shared, each replicate again."""

from unittest.mock import Mock

import numpy as np
import pytest
from builders import RIDGE, estimated, minimal_cell, solved
from theory_oracle import regression_values

from simstudy.attention import Members, mechanism, members_of, replicate_statistics
from simstudy.data import geometry, heads, training
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import ATTENDED, N_BLOCKS
from simstudy.kernels.errors import mean_variances
from simstudy.replicates import batch as batch_module
from simstudy.replicates.batch import draws_at_once, shares_data, simulate_batch, update
from simstudy.replicates.moments import empty
from simstudy.replicates.population import draws_of
from simstudy.replicates.replay import replay

QUERIES = {"kind": "points", "points": [[0.0], [0.5, -1.0], [2.0, 2.0, 2.0]]}


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize("treatment", ["integrated", "drawn"])
def test_replicates__equal_naive_loops_over_the_same_data(logits, treatment):
    cell = minimal_cell(
        logits=logits, noise_treatment=treatment, regression=RIDGE, queries=QUERIES, noise_sd=0.5, n_keys=17,
        query_projections="opposite",
    )  # fmt: skip
    for r in range(64, 96):
        seen, (means, gram) = replay(cell, r), solved(cell, {"logits": logits}, r)
        assert seen.attrs["failure"] == "" and seen.attrs["replicate"] == r
        points, drawn = (seen["keys"].values.T, seen.query_points.values), treatment == "drawn"
        values, target = (regression_values(cell.data.regression, each) for each in points)
        np.testing.assert_allclose(seen["values"], values + 0.5 * drawn * seen.noise.values, rtol=1e-9)
        np.testing.assert_allclose(seen.head_estimate, means, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(seen.target, target, rtol=1e-9)
        assert drawn == ("gram" not in seen)
        np.testing.assert_allclose(seen.get("gram", gram), gram, rtol=1e-9, atol=1e-12)


def test_shared_data__changes_no_bit():
    drawn = {"arrangement": "haar", "queries": {"kind": "gaussian", "count": 5}, "population": ["queries", "heads"]}
    cells = [
        *(minimal_cell(**drawn, bandwidth=bandwidth) for bandwidth in (0.5, 1.0)),
        minimal_cell(n_keys=33),
        minimal_cell(n_keys=130, bandwidth=0.4, regression=RIDGE),
        minimal_cell(n_keys=130, n_heads=3, noise_sd=0.1),
        minimal_cell(n_keys=130, bandwidth=0.4, regression=RIDGE, control="expansion"),
        minimal_cell(n_keys=130, arrangement="haar_redrawn", noise_treatment="drawn"),
        minimal_cell(n_keys=60, combination="product", normaliser={"kind": "compact", "power": 2, "window": 5.0}),
        minimal_cell(transformation={"kind": "merge", "stride": 3}, normaliser="sparsemax", noise_treatment="drawn"),
    ]
    assert [shares_data(cell) for cell in cells] == 2 * [shares_data(cells[0])] + 7 * [shares_data(cells[2])]
    for company in (cells[:2], cells[2:]):
        np.testing.assert_equal(simulate_batch(company, 1), [simulate_batch([cell], 1)[0] for cell in company])


@pytest.mark.parametrize("size", [4, 32])  # with fewer than 16 replicates some blocks are empty
@pytest.mark.parametrize("absorbed", [{}, {"logits": "dot_product", "head_dim": 8, "n_features": 42, "n_keys": 60}])
@pytest.mark.parametrize("names", [["queries"], ["queries", "heads"]])
def test_draws_computed_together__change_no_bit(monkeypatch, size, absorbed, names):
    if size == 32:  # some replicates fail
        draw = training.draw_keys
        monkeypatch.setattr(training, "draw_keys", lambda *of: np.where((x := draw(*of))[:, :1, :1] > 1.0, np.nan, x))
    drawn = {"queries": {"kind": "gaussian", "count": 5}, "population": names, "arrangement": "haar", "n_heads": 5}
    cell = minimal_cell(**drawn | absorbed, regression=RIDGE, batch_size=size)
    assert draws_at_once(cell, "cpu") >= 3 > draws_at_once(cell, "cuda") == 1
    alone = [draw for number in (2, 3, 4) for draw in draws_of(cell, simulate_batch([cell], number)[0], number)]
    np.testing.assert_equal(draws_of(cell, simulate_batch([cell], 2, "cpu", 3)[0], 2), alone)


def test_large_cells__share_data_whose_pieces_are_equal_where_they_are_computed():
    """On a CPU both hold one replicate at once; on a GPU they hold 16 and 8, and forests are not computed there."""
    cells = [minimal_cell(n_keys=n_keys, batch_size=256) for n_keys in (400_000, 800_000)]
    forests = [minimal_cell(n_keys=n_keys, batch_size=256, learner="random_forest") for n_keys in (400_000, 800_000)]
    for pair, device, n_groups in ((cells, "cpu", 1), (cells, "cuda", 2), (forests, "cuda", 1)):
        assert len({shares_data(cell, device) for cell in pair}) == n_groups
        lengths = [next(batch_module.pieces(cell, 0, device))[2] for cell in pair]
        assert len(set(lengths)) == n_groups and (lengths == [1, 1]) == (n_groups == 1)


@pytest.mark.parametrize("count", [1, 5])
def test_blocks_evaluated_together__change_no_bit_and_a_memory_bound_none_but_rounding(monkeypatch, count):
    cell = minimal_cell(regression=RIDGE, queries={"kind": "gaussian", "count": count}, batch_size=256)
    together = simulate_batch([cell], 0)
    monkeypatch.setattr(batch_module, "CACHE_BYTES", 1)
    np.testing.assert_equal(together, simulate_batch([cell], 0))
    monkeypatch.setattr(batch_module, "PIECE_BYTES", 1)
    (together,), (pieces,) = together, simulate_batch([cell], 0)
    for one, other in zip(together, pieces, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name, one", [("gram", 40 * 3 * 3 * 8), ("keys", 3 * 2 * 500 * 8)], ids=["queries", "keys"])
def test_largest_arrays__stay_within_the_memory_bound(monkeypatch, name, one):
    """``one`` is the size of the largest array of a replicate, by its shape."""
    many = {"gram": {"queries": {"kind": "gaussian", "count": 40}, "n_keys": 20}, "keys": {"n_keys": 500}}[name]
    cell = minimal_cell(**many, n_features=5, n_heads=3, head_dim=2, arrangement="haar", batch_size=256)
    sizes, evaluate = [], mechanism.evaluate

    def noted(estimator, bandwidth, inputs, *others):
        found = evaluate(estimator, bandwidth, inputs, *others)
        sizes.append({"gram": found.gram.nbytes, "keys": inputs.keys.nbytes}[name])
        return found

    monkeypatch.setattr("simstudy.attention.nadaraya_watson.evaluate", noted)
    monkeypatch.setattr(batch_module, "PIECE_BYTES", 3 * one)
    monkeypatch.setattr(batch_module, "CACHE_BYTES", 1)
    simulate_batch([cell], 0)
    assert max(sizes) == 3 * one and sum(sizes) == 256 * one


def test_redrawn_heads__have_random_indices_and_fixed_heads_those_of_their_projections():
    for arrangement, bandwidth in (("haar_redrawn", 1.0), ("haar", 1.0), ("haar", 2.0), ("orthogonal", 1.0)):
        found = estimated(cell := minimal_cell(arrangement=arrangement, bandwidth=bandwidth))
        assert (found.mcse["hdi"][0] > 1e-6) == (arrangement == "haar_redrawn")
        expected = geometry.diversity_indices(heads.key_projections(cell), bandwidth)
        assert np.allclose(found.estimate["hdi"][: expected.size], expected) == (arrangement != "haar_redrawn")


def test_replicate_that_raises__is_counted_alone_and_kept_by_number(monkeypatch):
    cell = minimal_cell(arrangement="haar_redrawn")
    (whole,) = simulate_batch([cell], 1)
    first, bad, drawn = cell.simulation.batch_size, 5, heads.key_projections

    def singular(cell, start=0, count=1):
        if start <= first + bad < start + count:
            raise np.linalg.LinAlgError("SVD did not converge")
        return drawn(cell, start, count)

    monkeypatch.setattr(heads, "key_projections", singular)
    (moments,) = simulate_batch([cell], 1)
    assert moments.failed.tolist() == [first + bad]
    per_block = first // N_BLOCKS
    expected = np.full(N_BLOCKS, per_block) - (np.arange(N_BLOCKS) == bad // per_block)
    assert moments.n_defined.tolist() == expected.tolist()
    others = expected == per_block
    np.testing.assert_array_equal(moments.error_sum[others], whole.error_sum[others])


CONTROL = ("control", "control_product")
CELLS = {
    "integrated": {"batch_size": 64},
    "drawn": {"noise_treatment": "drawn", "noise": {"kind": "student_t", "df": 4}, "batch_size": 64},
    "redrawn": {"arrangement": "haar_redrawn", "batch_size": 32, "logits": "dot_product"},
    "float32": {"dtype": "float32", "noise": {"kind": "heteroscedastic"}, "batch_size": 64},
    "controlled": {"control": "expansion", "batch_size": 32},
    "queries": {"queries": {"kind": "gaussian", "count": 3}, "query_projections": "haar", "batch_size": 16},
}


@pytest.mark.parametrize("settings", CELLS.values(), ids=CELLS)
def test_replayed_replicates__add_up_to_the_moments_of_their_batch(settings):
    cell = minimal_cell(regression="quadratic", **settings)
    size = cell.simulation.batch_size
    (batch,) = simulate_batch([cell], 2)
    parts = [replay(cell, 2 * size + k) for k in range(size)]
    summed = empty(16, parts[0].target.values, 2, batch.statistic_sum.shape[1], controlled=cell.controlled)
    for block in range(16):
        inside = parts[block * size // 16 : (block + 1) * size // 16]
        gram = np.stack([part.gram for part in inside]) if "gram" in inside[0] else None
        means, indices = (np.stack([part[name] for part in inside]) for name in ("head_estimate", "diversity"))
        attended = {} if gram is None else {ATTENDED: mean_variances(means, gram) / cell.data.noise_sd**2}
        members = Members(means, gram, indices, attended)
        statistics = replicate_statistics(members, parts[0].target.values, cell.statistics)
        variates = [np.stack([part[name] for part in inside]) for name in CONTROL if name in inside[0]]
        control = np.concatenate(variates, axis=-1) if variates else None
        summed = update(summed, range(block, block + 1), 2 * size, members._replace(control=control), statistics)
    np.testing.assert_equal(summed._asdict(), batch._asdict())
    (other,) = simulate_batch([cell], 3)
    assert not np.array_equal(summed.error_sum, other.error_sum)  # the control


def test_failed_replicate__says_why_and_a_defect_of_the_program_is_none(monkeypatch):
    cell = minimal_cell()
    monkeypatch.setattr(mechanism, "nw_moments", Mock(side_effect=FloatingPointError("overflow")))
    (batch,) = simulate_batch([cell], 0)
    assert batch.failed.tolist() == list(range(32))
    seen = replay(cell, 3)
    assert seen.attrs["failure"] == "FloatingPointError: overflow" and "keys" in seen and "gram" not in seen
    monkeypatch.setattr(mechanism, "nw_moments", Mock(side_effect=IndexError))
    with pytest.raises(IndexError):
        simulate_batch([cell], 0)


@pytest.mark.parametrize("combination", ["product", {"kind": "fitted", "n_validation": 20}], ids=str)
def test_one_estimate_of_all_heads__is_replayed_as_one(combination):
    queries = {"kind": "gaussian", "count": 3}
    cell = minimal_cell(noise_treatment="drawn", regression="ridge", queries=queries, combination=combination)
    seen = replay(cell, 5)
    assert seen.failure == "" and "head_estimate" not in seen
    np.testing.assert_array_equal(seen.ensemble_estimate, members_of(cell, SharedData(cell, 5, 1)).means[0, :, 0])
