"""What lies inside a cell, and cells compared after the fact: as verdicts do, and marked as what it is."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, loaded, refuses

import simstudy
from simstudy.design.measures import LENGTHS
from simstudy.errors import UserError
from simstudy.execution.store import read_tree
from simstudy.replicates.intervals import widening_of
from simstudy.replicates.performance import MOST_BLOCKS
from simstudy.results import cells_of

PAIRS = [({"angle": 0, "bandwidth": 0.5}, {"angle": 90, "bandwidth": 0.5}), (0, 5)]
COMPARED = """[claims.{name}]
statement = "s"
kind = "larger_than"
grid = "angles"
measure = "{measure}"
where = {{ angle = 0, bandwidth = 0.5 }}
versus = {{ angle = 90 }}
compared = "{name}"
expected = "undecided"

"""
FURTHER = """[grids.elsewhere]
settings = { seed = 8, n_heads = 3, arrangement = "orthogonal", bandwidth = 0.5 }
by_query = true
[grids.coarse]
settings = { batch_size = 64, n_heads = 1, arrangement = "aligned" }
[grids.few]
settings = { seed = 9, arrangement = "aligned" }
precision = { min_replicates = 32, max_replicates = 32 }
[grids.lost]
settings = { normaliser = { kind = "compact", power = 1 }, bandwidth = 0.01, arrangement = "orthogonal" }
[claims.mse-falls]"""
ELSEWHERE = {"grid": "elsewhere"}


def text() -> str:
    """Cells of one seed, of another, in longer blocks and without any estimate; and claims that compare two of them."""
    claims = "".join(COMPARED.format(name=each, measure="mse") for each in ("difference", "ratio"))
    design = edited(edited(DESIGN, "[claims.mse-falls]", FURTHER), "[figures.mse]", claims + "[figures.mse]")
    # So many that no block of 128 holds much of the error.
    design = edited(design, "min_replicates = 64", "min_replicates = 4096")
    return edited(design, "max_replicates = 512", "max_replicates = 4096")


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> xr.Dataset:
    folder = tmp_path_factory.mktemp("analysis")
    return cells_of(simstudy.run(loaded(folder, text()), output=folder, executor="serial"))


@pytest.mark.parametrize("name", ["difference", "ratio"])
def test_contrast__is_the_comparison_of_a_claim_to_the_last_bit(results, name):
    (row,) = np.flatnonzero(results.comparison_claim == name)
    a, b = PAIRS[0]
    found = simstudy.contrast(results, a, b, "mse", ratio=name == "ratio")
    assert found.statistic == results.comparison_statistic.values[row]
    assert found.estimate == results.comparison_estimate.values[row]
    assert found.mcse == results.comparison_mcse.values[row]
    # The claim's interval is at the level of one of four claims, this one at 2.5 % on either side.
    assert results.comparison_confidence_lower.values[row] < found.lower < found.estimate < found.upper
    assert found.paired and found.reason == ""
    shown = repr(found)
    assert shown.startswith("exploratory: mse at angle = 0, bandwidth = 0.5 ") and " angle = 90 = " in shown
    assert "paired block by block; 95 % at all looks: " in shown


def test_contrast__knows_the_covariance_of_cells_that_share_data_and_of_no_others(results):
    a, b = PAIRS[0]
    shares = [simstudy.details(results, where).mse_contribution.values for where in (a, b, ELSEWHERE)]
    paired, apart = (simstudy.contrast(results, a, other, "mse") for other in (b, ELSEWHERE))
    for found, share in ((paired, shares[0] - shares[1]), (apart, np.concatenate([shares[0], shares[2]]))):
        assert found.mcse == pytest.approx(np.linalg.norm(share) * widening_of(share), rel=0.05)
    assert paired.paired and not apart.paired and "independent cells" in repr(apart)
    assert apart.statistic == "mse at grid = angles, angle = 0, bandwidth = 0.5 minus grid = elsewhere"
    with pytest.raises(UserError, match=r"share replicates \(seed = 7\) in batches of different sizes"):
        simstudy.contrast(results, a, {"grid": "coarse"}, "mse")


def test_contrast__without_a_sound_error_has_no_interval_and_says_why(results):
    with pytest.raises(UserError, match="measure = 'risk': not in these results; they have direct_mse"):
        simstudy.contrast(results, *PAIRS[1], "risk")
    found = simstudy.contrast(results, ELSEWHERE, {"grid": "few"}, "mse")
    assert (found.lower, found.upper) == (-np.inf, np.inf)
    assert simstudy.contrast(results, 0, 0, "mse").statistic.endswith(" minus angle = 0, bandwidth = 0.5")
    assert "16 blocks of replicates or draws, 64 are needed" in repr(found)
    refuses("no replicate of this cell has an estimate", simstudy.contrast, results, 0, {"grid": "lost"}, "mse")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"grid": "angles", "angle": 45}, r"2 cells fit; choose one by stating more of bandwidth \(0.5, 1.0\)"),
        ({"grid": "angles", "angle": 31}, r"no cell; among all cells .*; angle \(0.0, 45.0, 90.0"),
        ({"angle": 0, "bandwidth": 0.8}, r"no cell; .* angle \(.*\); bandwidth \(0.5, 1.0"),
        ({"colour": 1}, "where.colour: no setting of these cells; they have grid, n_keys, "),
        ({}, r"10 cells fit; .*grid \('angles', 'elsewhere', 'coarse', 'few', 'lost'\)"),
        (10, "or a number below 10"),
        (-1, "or a number below 10"),
        (True, "or a number below 10"),
        ("angles", "or a number below 10"),
    ],
)
def test_cells_that_are_not_one__are_refused_with_what_tells_them_apart(results, where, expected):
    refuses(expected, simstudy.details, results, where)


def test_details__hold_every_cell_at_its_own_size(results):
    for cell, n_heads in enumerate(results.n_heads.values[:9]):
        inside = simstudy.details(results, cell)
        assert inside.sizes["head"] == inside.sizes["head_i"] == inside.sizes["head_j"] == n_heads
        assert inside.sizes["block"] == min(16 * results.n_batches.values[cell], MOST_BLOCKS)
        assert np.isfinite(inside.head_covariance).all() and np.isfinite(inside.mse_contribution).all()
        share = inside.mse_contribution.values
        printed = np.linalg.norm(share) * widening_of(share)
        assert printed == pytest.approx(float(results.mse_mcse[cell]), rel=1e-12, nan_ok=True)
        variance = np.diag(inside.head_covariance).mean()
        assert variance == pytest.approx(float(results.mean_variance.sel(source="empirical")[cell]))
        assert ("query" in inside.dims) == (cell == 6)
        assert all(inside[name].attrs["long_name"] for name in inside.variables)
    stored = read_tree(Path(results.encoding["source"]).with_name("details.nc"))  # where nothing is padded
    for dimension, count in LENGTHS.items():
        assert stored.sizes[dimension] == stored[count].sum() and stored[count].attrs["sample_dimension"] == dimension
    by_query = simstudy.details(results, ELSEWHERE)
    folder = Path(results.encoding["source"]).parent
    for same in (folder, str(folder / "results.nc"), simstudy.open_results(folder)):
        assert simstudy.details(same, ELSEWHERE).identical(by_query)
    assert by_query.query_point.shape == (1, 6) and not by_query.query_point.any()


def test_details_that_are_gone_or_of_another_run__are_told(results, tmp_path):
    with pytest.raises(UserError, match=r"no details of cell 0 \(the results were not read from a file\)"):
        simstudy.details(results.drop_encoding(), 0)
    other = results.assign_attrs(numbers="0")
    refuses("belongs to another run than these results; open the results again", simstudy.contrast, other, 0, 1, "mse")
    refuses("no details of cell 0", simstudy.details, results.assign_attrs(engine="0"), 0)
    moved = results.copy()
    moved.encoding["source"] = str(tmp_path / "results.nc")
    refuses(r"details\.nc: no results can be read", simstudy.details, moved, 0)
