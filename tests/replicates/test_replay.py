"""A replicate that is rebuilt alone is the one that entered the study, to the bit."""

import numpy as np
import pytest
from builders import loaded, minimal_cell

from simstudy.attention import Members, members_of, replicate_statistics
from simstudy.data.shared import SharedData
from simstudy.design.load import load_design
from simstudy.design.settings.cell import ATTENDED
from simstudy.errors import UserError
from simstudy.kernels.errors import mean_variances
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import empty, update
from simstudy.replicates.replay import replay, select

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
        summed = update(summed, range(block, block + 1), 2 * size, means, gram, control, statistics)
    for name, ours, theirs in zip(batch._fields, summed, batch, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    (other,) = simulate_batch([cell], 3)
    assert not np.array_equal(summed.error_sum, other.error_sum)  # the control


def test_replayed_arrays__give_the_estimates_by_plain_sums():
    cell = minimal_cell(noise_treatment="drawn", regression="ridge", noise_sd=0.5)
    seen = replay(cell, 5)
    projected = np.einsum("hdp,di->hpi", seen.key_projections, seen["keys"])
    for q in range(seen.sizes["query"]):
        point = np.einsum("hdp,d->hp", seen.query_projections, seen.query_points[q])
        distance = ((projected - point[:, :, None]) ** 2).sum(axis=1)
        weights = np.exp(-distance / (2 * cell.bandwidth**2))
        weights /= weights.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(weights @ seen["values"].values, seen.head_estimate[q], rtol=1e-12)
    noisy = np.sin(seen["keys"].values[0]) + 0.5 * seen.noise.values
    np.testing.assert_allclose(seen["values"], noisy, rtol=1e-12)
    assert seen.attrs["failure"] == "" and seen.attrs["replicate"] == 5


def test_failed_replicate__says_why(monkeypatch):
    def overflow(*_):
        raise FloatingPointError("overflow")

    cell = minimal_cell()
    monkeypatch.setattr("simstudy.attention.mechanism.nw_moments", overflow)
    (batch,) = simulate_batch([cell], 0)
    assert batch.failed.tolist() == list(range(32))
    seen = replay(cell, 3)
    assert seen.attrs["failure"] == "FloatingPointError: overflow" and "keys" in seen and "gram" not in seen


def test_cells__are_selected_by_number_or_by_level(tmp_path):
    design = loaded(tmp_path)
    assert select(design, "4") == 4
    assert select(design, "angle=90, bandwidth=0.5") == 4 == select(design, "grid=angles,bandwidth=0.50,angle=90.0")
    for wrong, message in {
        "6": "cells 0 to 5", "angle=90": r"2 cells fit \(4, 5\)", "angle=1": "no cell fits", "angel=1": "no setting",
        "angle=0, angle=90": "angle stands more than once", "total_dim=1": "total_dim is left out",
        "-1": "neither a number", "": "neither a number", "angle": "neither a number", "²": "neither a number",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=message):
            select(design, wrong)
    with pytest.raises(UserError, match="at least 0"):
        replay(design.cells[0].cell, -1)


def test_commas_inside_a_level__do_not_divide_it(tmp_path):
    design = load_design("designs/principal-angles.toml")
    number = select(design, "grid=equal-chordal, principal_angles=(0, 90), bandwidth=0.25")
    assert design.cells[number].cell.heads.principal_angles == (0.0, 90.0)


@pytest.mark.parametrize(
    "settings", [{"combination": "product"}, {"combination": {"kind": "fitted", "n_validation": 20}}], ids=str
)
def test_one_estimate_of_all_heads__is_replayed_as_one(settings):
    queries = {"kind": "gaussian", "count": 3}
    cell = minimal_cell(noise_treatment="drawn", regression="ridge", queries=queries, **settings)
    seen = replay(cell, 5)
    assert seen.failure == "" and "head_estimate" not in seen
    means = members_of(cell, SharedData(cell, 5, 1)).means
    np.testing.assert_array_equal(seen.ensemble_estimate, means[0, :, 0])
