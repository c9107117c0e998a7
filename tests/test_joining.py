"""Results of several studies as one: every cell once, nothing invented, contrasts across them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, write_design

import simstudy
from simstudy.design.document import Confirmation
from simstudy.design.load import load_design
from simstudy.errors import UserError

ANGLES = "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]\n"


def run(folder, name: str, factors: str, settings: str = "") -> xr.Dataset:
    text = edited(edited(DESIGN, 'name = "tiny"', f'name = "{name}"'), ANGLES, factors)
    text = edited(text, "[grids.angles.factors]", f"[grids.angles]\n{settings}\n[grids.angles.factors]")
    design = load_design(write_design(folder, text.replace('hue = "bandwidth"\n', "")))
    return simstudy.run(design, output=folder / "out", executor="serial")


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> dict[str, xr.Dataset]:
    """One study of two angles, one of a third, and one of all: of the same seed."""
    folder = tmp_path_factory.mktemp("joining")
    power = 'settings = { normaliser = { kind = "entmax", power = 2 } }'
    return {
        "two": run(folder, "two", "angle = [0, 90]\n"),
        "one": run(folder, "one", 'angle = [45, 60]\n"normaliser.power" = [2, 3]\n', power),
        "all": run(folder, "all", "angle = [0, 45, 90]\n"),
    }


def test_contrast_of_cells_of_two_studies__is_paired_as_within_one(studies):
    joined = simstudy.concat([studies["two"], studies["all"]])
    across = simstudy.contrast(joined, {"study": "two", "angle": 0}, {"study": "all", "angle": 45}, "mse")
    within = simstudy.contrast(studies["all"], {"angle": 0}, {"angle": 45}, "mse")
    assert across.paired and across[1:] == within[1:] and across.mcse > 0
    assert across.statistic == "mse: study = two, angle = 0 minus study = all, angle = 45"
    same = simstudy.contrast(joined, {"study": "two", "angle": 0}, {"study": "all", "angle": 0}, "mse")
    assert same.estimate == 0.0 and same.mcse < 1e-9


def test_joined_results__hold_every_cell_and_claim_of_each(studies):
    parts = [studies["two"], studies["one"]]
    joined = simstudy.concat(parts)
    assert joined.sizes["cell"] == 6 and joined.study.values.tolist() == ["two"] * 2 + ["one"] * 4
    np.testing.assert_array_equal(
        joined.mse, xr.concat([part.mse.drop_vars(list(part.mse.coords)) for part in parts], "cell")
    )
    assert joined.claim.values.tolist() == ["two/quick/mse-falls", "one/quick/mse-falls"]
    assert joined.verdict.values.tolist() == [str(part.verdict.item()) for part in parts]
    assert joined.sizes["comparison"] == sum(part.sizes["comparison"] for part in parts)
    assert set(joined.comparison_claim.values) == set(joined.claim.values)
    # A setting that means nothing in one study is empty there.
    assert joined["normaliser.power"].values[2:].tolist() == [2, 3, 2, 3]
    assert np.isnan(joined["normaliser.power"].values[:2]).all()
    assert joined.look_replicates.dtype.kind == "i" and (joined.look_replicates[:, 0] > 0).all()


def test_claims_of_one_study__are_told_apart_by_profile_and_confirmation(studies):
    pilot = studies["two"]
    full = pilot.assign_attrs(profile="full").assign_coords(batch_size=2 * pilot.batch_size)
    sealed = {"seal": "a" * 64, "beacon": "a text"}
    confirmed = pilot.assign_attrs(sealed).assign_coords(seed=pilot.seed + 1)
    folder = Confirmation(**sealed).name
    joined = simstudy.concat([pilot, full, simstudy.concat([confirmed])])
    names = ["two/quick/mse-falls", "two/full/mse-falls", f"two/quick/confirmed/{folder}/mse-falls"]
    assert joined.claim.values.tolist() == names and [*dict.fromkeys(joined.comparison_claim.values)] == names
    other = full.assign_attrs(profile="quick").assign(verdict_estimate=full.verdict_estimate + 1)
    with pytest.raises(UserError, match=r"two claims have the name two/quick/mse-falls; give one of the studies"):
        simstudy.concat([pilot, other])


def test_attributes__are_those_that_all_agree_on(studies):
    joined = simstudy.concat([studies["two"], studies["one"]])
    assert joined.attrs["title"] == "A tiny study" and joined.attrs["factors"] == "angles: angle, normaliser.power"
    assert not {"design", "design_hash", "study"} & joined.attrs.keys()
    assert {"study", "profile", "engine"} <= set(joined.coords)
    grid = simstudy.to_grid(simstudy.concat([studies["two"]]))
    np.testing.assert_array_equal(grid.mse, simstudy.to_grid(studies["two"]).mse)


def test_joined_results__can_be_joined_and_cut_and_still_know_their_details(studies):
    parts = [simstudy.concat([studies["two"]]).isel(cell=[cell]) for cell in (0, 1)]
    joined = simstudy.concat([parts[1], studies["one"], parts[0]])
    assert joined.sizes["cell"] == 6 and joined.claim.values.tolist() == ["two/quick/mse-falls", "one/quick/mse-falls"]
    joined = simstudy.concat([joined.isel(cell=slice(1, 5)), joined.isel(cell=[0])])
    assert joined.comparison.values.tolist() == [*range(joined.sizes["comparison"])] and joined.sizes["claim"] == 2
    assert joined.sizes["comparison"] == studies["two"].sizes["comparison"] + studies["one"].sizes["comparison"]
    assert simstudy.details(joined, 0).sizes["block"] == simstudy.details(studies["two"], 1).sizes["block"]


def test_a_cell_that_is_in_two__is_refused(studies):
    with pytest.raises(UserError, match=r"a cell is in two of the results \(profiles quick and quick\).*study = all"):
        simstudy.concat([studies["all"], studies["all"].isel(cell=[2])])
    for given, message in (([], "no results are given"), ([xr.Dataset()], "not the results of a study")):
        with pytest.raises(UserError, match=message):
            simstudy.concat(given)


def test_xarray__joins_results_by_itself(studies):
    joined = xr.concat([studies["two"], studies["all"]], "cell", data_vars="all", join="outer")
    assert joined.sizes["cell"] == 5
    np.testing.assert_array_equal(joined.mse_mcse[:2], studies["two"].mse_mcse)
    np.testing.assert_array_equal(joined.mse_mcse[2:], studies["all"].mse_mcse)
    with pytest.raises(UserError, match=r"no details of cell 3 .*join them with simstudy\.concat"):
        simstudy.details(joined, 3)
