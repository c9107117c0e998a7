"""Results as people write them with xarray, what is inside a cell, and cells compared after the fact as by verdicts."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, refuses, run, write_design
from builders_results import DESIGN as MADE_UP
from builders_results import build_results

import simstudy
from simstudy.design.load import load_design
from simstudy.design.measures import LENGTHS, described
from simstudy.execution.store import Store, read_tree
from simstudy.replicates.intervals import widening_of
from simstudy.replicates.performance import MOST_BLOCKS
from simstudy.report.page import require_same_design
from simstudy.results import LAYOUT, cells_of, open_results, tree_of


def assert_same(found: xr.Dataset, cells: xr.Dataset) -> None:
    """All of a table to the bit, but for what is undefined in every cell and asked for by none."""
    lost = cells.variables.keys() - found.variables.keys()
    assert all(name.partition("_mcse")[0] == "regret" for name in lost)
    xr.testing.assert_identical(found, cells.drop_vars(lost))
    numeric = [name for name in found.variables if cells[name].dtype.kind not in "OU"]
    assert [found[name].dtype for name in numeric] == [cells[name].dtype for name in numeric]


@pytest.mark.parametrize("factors, arrangement", [
    ({}, "orthogonal"),
    ({"bandwidth": [0.5, 1]}, "orthogonal"),
    ({"bandwidth": ["attention", {"kind": "rate"}]}, "orthogonal"),
    ({"regression": ["zero", {"kind": "ridge"}], "principal_angles": [[10, 20], [30.5, 90]]}, "principal_angles"),
    ({"n_keys": [40, 80], "head_dim": [1, 2], "bandwidth": ["attention", 0.5], "n_heads": [2, 3]}, "orthogonal"),
], ids=["none", "one-number", "one-rule", "text", "four"])  # fmt: skip
def test_grid__has_a_dimension_for_each_factor_and_every_cell_at_its_place(tmp_path, factors, arrangement):
    tables, sizes = tomllib.loads(DESIGN) | {"claims": {}, "figures": {}}, dict.fromkeys(factors, 2)
    tables["heads"]["arrangement"], tables["precision"]["max_replicates"] = arrangement, 64
    tables["grids"]["angles"]["factors"] = factors
    cells = run(tables, output=tmp_path, executor="serial")
    opened = open_results(tmp_path / "tiny" / "quick")
    grid = opened["angles"]
    assert grid.mse.sizes == sizes and {"query", "head_i", "index"}.isdisjoint(grid.mse.dims)
    kinds = {name: "f" if name in ("n_keys", "n_heads", "head_dim") else grid[name].dtype.kind for name in sizes}
    assert all(grid[name].dtype.kind in kind + "iuf"[: 3 * (kind == "f")] for name, kind in kinds.items())
    for number in range(cells.sizes["cell"]):
        for group, name in (("", "mse"), ("errors", "mse_mcse")):
            flat = cells[name].isel(cell=number).values.ravel()[0]
            assert (grid[group] if group else grid).mse.values[(grid["cell"] == number).values].item() == flat
    assert_same(cells_of(opened), cells)


def test_tree__draws_a_labelled_curve_and_has_nothing_that_is_undefined_throughout(results, tmp_path):
    tree = xr.open_datatree(Store(tmp_path).write_dataset("results.nc", tree_of(results)))
    (line,) = tree["angles"].ds.mse.sel(n_keys=400).isel(regression=0).plot()
    assert line.get_xdata().tolist() == [0, 15, 30, 45, 60, 75, 90] and line.axes.get_xlabel() == "angle [degrees]"
    for node in tree.subtree:
        for name, variable in node.data_vars.items():
            assert not variable.isnull().all(), (node.path, name)
    assert tree["angles"].n_keys.attrs == {"long_name": "training pairs", "units": "1"}
    assert tree["angles"].attrs["n_heads"] == 4 and tree["many-heads"].sizes["bandwidth"] == 3
    assert set(tree["many-heads"].bandwidth.values.tolist()) == {"0.4", "0.8", "attention"}
    assert tree["angles/theory"].mse.sel(source="exact").notnull().sum() == 14
    assert tree["verdicts"].verdict.values.tolist() == ["supported", "contradicted", "undecided"]
    assert tree["comparisons"].claim.values.tolist() == ["falls", "agrees", "floor"]
    tree.close()


def test_grid_with_few_of_its_combinations__has_gaps_or_is_a_list_of_cells(results):
    """What has no cell is missing, and nothing else; a diagonal of many levels would be nearly empty."""
    angles = np.flatnonzero(results.grid.values == "angles")
    gap = results.isel(cell=np.delete(np.arange(results.sizes["cell"]), angles[3]))
    grid = tree_of(gap)["angles"]
    assert int(grid.mse.isnull().sum()) == 1 and int((grid["cell"] < 0).sum()) == 1
    assert_same(cells_of(tree_of(gap)), gap)
    diagonal = results.isel(cell=angles[[0, 8, 16, 24]]).assign_attrs(factors="angles: regression, n_keys, angle")
    levels = ("cell", [1.0, 2.0, 3.0, 4.0])
    diagonal = described(diagonal.assign_coords(angle=levels, n_keys=levels))
    assert tree_of(diagonal)["angles"].mse.dims == ("cell",)
    assert_same(cells_of(tree_of(diagonal)), diagonal)


def test_what_is_opened__survives_a_fuller_index_and_a_file(results, tmp_path):
    Store(tmp_path).write_dataset("results.nc", tree_of(results))
    opened = open_results(tmp_path)
    assert not any(each.encoding for node in opened.subtree for each in node.variables.values())
    grid = opened["angles"].to_dataset().assign(inapplicable=opened["angles/theory"].inapplicable)
    fuller = grid.reindex(angle=[*grid.angle.values, 180.0])
    whole = xr.concat([fuller, fuller.assign_coords(n_keys=fuller.n_keys * 10)], "n_keys")
    whole.to_netcdf(tmp_path / "whole.nc")
    with xr.open_dataset(tmp_path / "whole.nc") as again:
        there = again.sel(angle=grid.angle, n_keys=grid.n_keys)
        assert there.precision_reached.values.tolist() == grid.precision_reached.values.tolist()
        assert there.inapplicable.values.tolist() == grid.inapplicable.values.tolist()
        missing = again.sel(angle=180.0)
        assert missing.precision_reached.isnull().all() and set(missing.inapplicable.values.ravel().tolist()) <= {""}


def test_files__are_compressed_without_losing_a_digit(results, tmp_path):
    many = results.isel(cell=np.arange(5000) % results.sizes["cell"])
    many["mse_mcse"] = "cell", np.random.default_rng(1).standard_normal(5000)
    path = Store(tmp_path).write_dataset("details.nc", many)
    text = sum(len(str(each)) for v in many.variables.values() if v.dtype.kind in "OU" for each in v.values.ravel())
    numbers = sum(v.nbytes for v in many.variables.values() if v.dtype.kind not in "OU")
    assert path.stat().st_size < 0.25 * (numbers + text)
    with xr.open_dataset(path) as again:
        assert again.mse.encoding["zlib"] and again.drop_encoding().identical(many)


def test_what_is_no_tree_of_results__is_refused_in_one_line(results, tmp_path, monkeypatch):
    foreign = xr.Dataset({"air": ("time", [1.0])})
    tree = tree_of(results)
    (renamed := tree.copy()).attrs["factors"] = "sides: angle"
    for lacking in (foreign, tree.drop_nodes("settings"), tree.filter(lambda node: node.parent), renamed):
        refuses("not the results of a study", cells_of, lacking)
    (altered := tree.copy()).attrs.update({"design": "{}", "run": "{}"})
    assert "43 failed, by an unknown device" in repr(altered.simstudy)
    refuses("design: profiles = .quick.: no such profile", getattr, altered.simstudy, "figures")
    refuses("results = None: give results of run or open_results, or the folder", simstudy.details, None, 0)
    path = tmp_path / "air.nc"
    foreign.to_netcdf(path, engine="netcdf4")
    refuses(r"air\.nc: damaged, or not the results of a study; .*, or use open_datatree", open_results, path)
    store = Store(tmp_path)
    told = r"results\.nc: layout of another version of simstudy \(0.0.9, commit some commit\); run the study again"
    for change in ({"layout": ""}, {"layout": LAYOUT, "title": 7.0}):
        tree.attrs |= {"simstudy_version": "0.0.9"} | change
        store.write_dataset("results.nc", tree)
        refuses(told, open_results, tmp_path)
    store.write_dataset("results.nc", foreign)
    refuses(r"results\.nc: these are not the results of a study", open_results, tmp_path)
    monkeypatch.chdir(tmp_path)
    write_design(tmp_path / "tiny")
    for name in ("tiny", "t" * 300):
        refuses("run the study first", open_results, name)
    Store(tmp_path / "outputs" / "tiny" / "quick").write_dataset("results.nc", tree_of(results))
    for study in ("tiny", "outputs/tiny"):  # and not the folder of its design
        assert open_results(study).identical(open_results("outputs/tiny/quick"))


def test_results_with_other_contents_than_the_design__get_no_report(tmp_path):
    order = {"order": {"title": "t", "kind": "ordering", "grid": "angles", "y": "mse"}}
    design = load_design(MADE_UP | {"figures": MADE_UP["figures"] | order})
    whole, stored = build_results(design), design.figures["order"].stored
    whole = whole.assign(dict.fromkeys(stored, np.nan * whole.hdi.expand_dims(figure=["order"])))  # of equal indices
    require_same_design(cells_of(tree_of(whole)), design, Store(tmp_path))  # the control
    for lacking in (
        whole.isel(cell=slice(0, 3)),
        whole.isel(claim=[]),
        whole.assign_coords(claim=["rises", *whole.claim.values[1:]]),
        whole.assign_coords(angle=whole.angle + 1.0),
        whole.assign_coords(figure=["most"]),
        whole.drop_vars(min(stored)),
        whole.assign_attrs(factors="corners: angle, bandwidth"),
    ):
        told = "lacks cells, claims or figures of the design; run the study again"
        refuses(told, require_same_design, lacking, design, Store(tmp_path))


ONE, OTHER = ({"angle": angle, "bandwidth": 0.5} for angle in (0, 90))
ELSEWHERE = {"grid": "elsewhere"}


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> xr.Dataset:
    """Cells of one seed, of another, in longer blocks and without any estimate; and claims that compare two of them."""
    tables, alone = tomllib.loads(DESIGN), {"arrangement": "orthogonal"}
    tables["grids"] |= {
        "elsewhere": {"settings": alone | {"seed": 8, "n_heads": 3, "bandwidth": 0.5}, "by_query": True},
        "coarse": {"settings": {"batch_size": 64, "n_heads": 1, "arrangement": "aligned"}},
        "few": {"settings": {"seed": 9, "arrangement": "aligned"}},
        "lost": {"settings": alone | {"normaliser": {"kind": "compact", "power": 1}, "bandwidth": 0.01}},
    }
    tables["grids"]["few"]["precision"] = {"min_replicates": 32, "max_replicates": 32}
    claim = {"statement": "s", "kind": "larger_than", "grid": "angles", "measure": "mse", "expected": "undecided"}
    claim |= {"where": ONE, "versus": {"angle": 90}}
    tables["claims"] |= {name: claim | {"compared": name} for name in ("difference", "ratio")}
    # So many that no block of 128 holds much of the error.
    tables["precision"] |= {"min_replicates": 4096, "max_replicates": 4096}
    return cells_of(simstudy.run(tables, output=tmp_path_factory.mktemp("analysis"), executor="serial"))


@pytest.mark.parametrize("name", ["difference", "ratio"])
def test_contrast__is_the_comparison_of_a_claim_to_the_last_bit(compared, name):
    (row,) = np.flatnonzero(compared.comparison_claim == name)
    found = simstudy.contrast(compared, ONE, OTHER, "mse", ratio=name == "ratio")
    for part in ("statistic", "estimate", "mcse"):
        assert getattr(found, part) == compared[f"comparison_{part}"].values[row]
    # The claim's interval is at the level of one of four claims, this one at 2.5 % on either side.
    assert compared.comparison_confidence_lower.values[row] < found.lower < found.estimate < found.upper
    assert found.paired and found.reason == ""
    shown = repr(found)
    assert shown.startswith("exploratory: mse at angle = 0, bandwidth = 0.5 ") and " angle = 90 = " in shown
    assert "paired block by block; 95 % at all looks: " in shown


def test_contrast__knows_the_covariance_of_cells_that_share_data_and_says_why_it_has_no_interval(compared):
    shares = [simstudy.details(compared, where).mse_contribution.values for where in (ONE, OTHER, ELSEWHERE)]
    paired, apart = (simstudy.contrast(compared, ONE, other, "mse") for other in (OTHER, ELSEWHERE))
    for found, share in ((paired, shares[0] - shares[1]), (apart, np.concatenate([shares[0], shares[2]]))):
        assert found.mcse == pytest.approx(np.linalg.norm(share) * widening_of(share), rel=0.05)
    assert paired.paired and not apart.paired and "independent cells" in repr(apart)
    assert apart.statistic == "mse at grid = angles, angle = 0, bandwidth = 0.5 minus grid = elsewhere"
    told = r"share replicates \(seed = 7\) in batches of different sizes"
    refuses(told, simstudy.contrast, compared, ONE, {"grid": "coarse"}, "mse")
    refuses("measure = 'risk': not in these results; they have direct_mse", simstudy.contrast, compared, 0, 5, "risk")
    found = simstudy.contrast(compared, ELSEWHERE, {"grid": "few"}, "mse")
    assert (found.lower, found.upper) == (-np.inf, np.inf)
    assert np.isnan(simstudy.contrast(compared, 0, 1, "failure_rate", ratio=True).estimate)  # over 0
    assert simstudy.contrast(compared, 0, 0, "mse").statistic.endswith(" minus angle = 0, bandwidth = 0.5")
    assert "16 blocks of replicates or draws, 64 are needed" in repr(found)
    refuses("no replicate of this cell has an estimate", simstudy.contrast, compared, 0, {"grid": "lost"}, "mse")


def test_contrast_with_a_population__is_that_of_a_claim_too(tmp_path):
    claim = {"statement": "s", "kind": "larger_than", "grid": "points", "measure": "mse"}
    claim |= {"where": {"queries": "gaussian(count=4)"}, "versus": {"queries": "origin"}}
    drawn = {"regression": "ridge", "population": ["queries"], "arrangement": "orthogonal", "head_dim": 1}
    grid = {"settings": drawn, "factors": {"queries": ["origin", {"kind": "gaussian", "count": 4}]}}
    tables = tomllib.loads(DESIGN) | {"grids": {"points": grid}, "claims": {"a": claim, "b": claim}, "figures": {}}
    tables["precision"] |= {"min_replicates": 16384, "max_replicates": 16384}
    results = simstudy.run(tables, output=tmp_path, executor="serial")
    found, stated = simstudy.contrast(results, 1, 0, "mse"), results["comparisons"].isel(comparison=0)
    for name in ("estimate", "mcse", "confidence_lower", "confidence_upper"):  # at half of the level on each side
        assert getattr(found, name.removeprefix("confidence_")) == pytest.approx(stated[name].item(), rel=1e-13)
    points = simstudy.details(results, 1).mse_randomisation
    assert 0 < np.linalg.norm(points) < found.mcse and not simstudy.details(results, 0).mse_randomisation.any()


@pytest.mark.parametrize("where, expected", [
    ({"grid": "angles", "angle": 45}, r"2 cells fit; choose one by stating more of bandwidth \(0.5, 1.0\)"),
    ({"grid": "angles", "angle": 31}, r"no cell fits; the cells .*; angle \(0.0, 45.0, 90.0"),
    ({"angle": 0, "bandwidth": 0.8}, r"no cell fits; .* angle \(.*\); bandwidth \(0.5, 1.0"),
    ({"colour": 1}, "where.colour: no setting of these cells; they have grid, n_keys, "),
    ({}, r"10 cells fit; .*grid \('angles', 'elsewhere', 'coarse', 'few', 'lost'\)"),
    *((number, "or a number below 10") for number in (10, -1, True, "angles")),
])  # fmt: skip
def test_cells_that_are_not_one__are_refused_with_what_tells_them_apart(compared, where, expected):
    refuses(expected, simstudy.details, compared, where)


def test_details__hold_every_cell_at_its_own_size_and_are_those_of_the_run(compared, tmp_path):
    for cell, n_heads in enumerate(compared.n_heads.values[:9]):
        inside = simstudy.details(compared, cell)
        assert inside.sizes["head"] == inside.sizes["head_i"] == inside.sizes["head_j"] == n_heads
        assert inside.sizes["block"] == min(16 * compared.n_batches.values[cell], MOST_BLOCKS)
        assert np.isfinite(inside.head_covariance).all() and np.isfinite(inside.mse_contribution).all()
        share = inside.mse_contribution.values
        printed = np.linalg.norm(share) * widening_of(share)
        assert printed == pytest.approx(float(compared.mse_mcse[cell]), rel=1e-12, nan_ok=True)
        variance = np.diag(inside.head_covariance).mean()
        assert variance == pytest.approx(float(compared.mean_variance.sel(source="empirical")[cell]))
        assert ("query" in inside.dims) == (cell == 6)
        assert all(inside[name].attrs["long_name"] for name in inside.variables)
    stored = read_tree(Path(compared.encoding["source"]).with_name("details.nc"))  # where nothing is padded
    for dimension, count in LENGTHS.items():
        assert stored.sizes[dimension] == stored[count].sum() and stored[count].attrs["sample_dimension"] == dimension
    by_query = simstudy.details(compared, ELSEWHERE)
    folder = Path(compared.encoding["source"]).parent
    for same in (folder, str(folder / "results.nc"), simstudy.open_results(folder)):
        assert simstudy.details(same, ELSEWHERE).identical(by_query)
    assert by_query.query_point.shape == (1, 6) and not by_query.query_point.any()
    # Those that are gone or of another run are told.
    told = r"no details of cell 0 \(the results were not read from a file\)"
    refuses(told, simstudy.details, compared.drop_encoding(), 0)
    other = compared.assign_attrs(numbers="0")
    refuses("belongs to another run than these results; open the results again", simstudy.contrast, other, 0, 1, "mse")
    refuses("no details of cell 0", simstudy.details, compared.assign_attrs(engine="0"), 0)
    moved = compared.copy()
    moved.encoding["source"] = str(tmp_path / "results.nc")
    refuses(r"details\.nc: no results can be read", simstudy.details, moved, 0)
