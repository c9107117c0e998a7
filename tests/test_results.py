"""Results as files and grids: every cell at its place, and one line on those that another version has written."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, FIGURES, edited, write_design
from builders_results import build_design, build_results

from simstudy.design.load import load_design
from simstudy.design.measures import ATTRIBUTES
from simstudy.errors import UserError
from simstudy.execution.store import Store, read_results
from simstudy.report.page import require_same_design
from simstudy.results import factors_of, open_results, require_layout, to_grid
from simstudy.study import run

TINY = edited(DESIGN.partition("[claims")[0], "max_replicates = 512", "max_replicates = 64") + "[profiles.quick]\n"
FACTORS = "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]\n"


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    return build_results(build_design(tmp_path_factory.mktemp("design")))


def run_tiny(folder, factors: str, arrangement: str) -> xr.Dataset:
    text = edited(edited(TINY, FACTORS, factors), 'arrangement = "rotated"', f'arrangement = "{arrangement}"')
    return run(load_design(write_design(folder, text)), output=folder, executor="serial")


def assert_laid_out(grid: xr.Dataset, results: xr.Dataset, sizes: dict[str, int]) -> None:
    """Same values as in the flat results, none missing and none added."""
    assert {name: grid.sizes[name] for name in sizes} == sizes
    assert "cell" not in grid.dims
    for name in ("mse", "mse_mcse"):
        laid_out = grid[name].sel(source="empirical") if name == "mse" else grid[name]
        flat = results[name].sel(source="empirical") if name == "mse" else results[name]
        assert set(laid_out.dims) == set(sizes)
        np.testing.assert_array_equal(np.sort(laid_out.values.ravel()), np.sort(flat.values))
        assert np.isfinite(flat).all()


def test_bandwidth_by_rule__is_one_level_although_its_number_differs(tmp_path):
    results = run_tiny(tmp_path, 'head_dim = [1, 2]\nbandwidth = ["attention", 0.5]\n', "orthogonal")
    grid = to_grid(results)
    assert_laid_out(grid, results, {"head_dim": 2, "bandwidth": 2})
    assert set(grid.bandwidth.values.tolist()) == {"attention", "0.5"}
    for rule in ("attention", "0.5"):
        for head_dim in (1, 2):
            b = head_dim**0.25 if rule == "attention" else 0.5
            flat = results.mse_mcse[((results.head_dim == head_dim) & (results.bandwidth == b)).values]
            assert grid.mse_mcse.sel(bandwidth=rule, head_dim=head_dim).item() == flat.item()


def test_fixed_bandwidth__stays_a_number(made_up, tmp_path):
    grid = to_grid(run_tiny(tmp_path, "bandwidth = [0.5, 1]\n", "orthogonal"))
    assert grid.bandwidth.dtype == float
    assert grid.mse.sel(bandwidth=1.0).notnull().any()
    assert set(to_grid(made_up, "many-heads").bandwidth.values.tolist()) == {"0.4", "0.8", "attention"}


@pytest.mark.parametrize(
    ("factors", "arrangement", "sizes"),
    [
        ("", "orthogonal", {}),
        ("n_keys = [40, 80]\n", "orthogonal", {"n_keys": 2}),
        ('bandwidth = ["attention", { kind = "rate" }]\n', "orthogonal", {"bandwidth": 2}),
        (
            'regression = ["zero", { kind = "ridge" }]\nprincipal_angles = [[10, 20], [30.5, 90]]\n',
            "principal_angles",
            {"regression": 2, "principal_angles": 2},
        ),
        (
            'n_keys = [40, 80]\nhead_dim = [1, 2]\nbandwidth = ["attention", 0.5]\nn_heads = [2, 3]\n',
            "orthogonal",
            {"n_keys": 2, "head_dim": 2, "bandwidth": 2, "n_heads": 2},
        ),
    ],
    ids=["none", "one", "one-rule", "text", "four"],
)
def test_grid__has_one_dimension_for_each_factor(tmp_path, factors, arrangement, sizes):
    results = run_tiny(tmp_path, factors, arrangement)
    assert_laid_out(to_grid(results), results, sizes)


def test_several_grids__must_be_named(made_up):
    with pytest.raises(UserError, match="angles, many-heads, single"):
        to_grid(made_up)
    assert to_grid(made_up, "single").sizes["n_keys"] == 1
    with pytest.raises(UserError, match="not in these results"):
        to_grid(made_up, "")


def test_factors__are_read_as_they_are_recorded(made_up):
    assert factors_of(made_up) == {
        "angles": ("regression", "n_keys", "angle"),
        "many-heads": ("bandwidth", "n_heads"),
        "single": ("n_keys",),
    }
    assert factors_of(made_up.assign_attrs(factors="a: ; b-2: n_keys")) == {"a": (), "b-2": ("n_keys",)}


def test_files__are_compressed_without_losing_a_digit(made_up, tmp_path):
    many = made_up.isel(cell=np.arange(5000) % made_up.sizes["cell"])
    many["mse_mcse"] = "cell", np.random.default_rng(1).standard_normal(5000)
    path = Store(tmp_path).write_dataset("results.nc", many)
    text = sum(len(str(each)) for v in many.variables.values() if v.dtype.kind in "OU" for each in v.values.ravel())
    numbers = sum(v.nbytes for v in many.variables.values() if v.dtype.kind not in "OU")
    assert path.stat().st_size < 0.25 * (numbers + text)
    again = open_results(tmp_path)
    assert again.drop_encoding().identical(many) and again.mse.encoding["zlib"] and again.regression.encoding["zlib"]


def test_coordinates__have_names_and_units(made_up):
    assert made_up.n_keys.attrs == {"long_name": "training pairs", "units": "1"}
    assert made_up.angle.attrs == {"long_name": "angle", "units": "degrees"}
    assert made_up.regression.attrs == {"long_name": "regression function"}
    for coordinate in made_up.coords.values():
        assert coordinate.attrs["long_name"] and ("units" in coordinate.attrs) == (coordinate.dtype.kind not in "OU")


def test_foreign_data__are_refused(made_up, tmp_path):
    foreign = xr.Dataset({"air": ("time", [1.0])})
    for data in (foreign, foreign.assign_attrs(factors=3), foreign.assign_attrs(factors="a: b")):
        with pytest.raises(UserError, match="not the results of a study"):
            to_grid(data)
    path = tmp_path / "air.nc"
    foreign.to_netcdf(path, engine="netcdf4")
    with pytest.raises(UserError, match=r"air\.nc: damaged, or not the results of a study"):
        open_results(path)
    Store(tmp_path).write_dataset("air.nc", foreign)
    with pytest.raises(UserError, match=r"air\.nc: these are not the results of a study"):
        open_results(path)
    Store(tmp_path).write_dataset("results.nc", made_up)
    assert open_results(tmp_path).sizes == made_up.sizes


def test_threads_that_read_and_write_results__do_not_end_the_process(made_up, tmp_path):
    """A crash within the netCDF library, of calls that its lock did not guard."""
    Store(tmp_path).write_dataset("results.nc", made_up)
    program = f"""
from concurrent.futures import ThreadPoolExecutor
import subprocess
import sys
from pathlib import Path
from simstudy.execution.store import netcdf, read_results

def work(_):
    for _ in range(40):
        netcdf(read_results(Path({str(tmp_path / "results.nc")!r})))

list(ThreadPoolExecutor(2).map(work, range(2)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


OPTIONAL = {"optimum_share", "estimator"}  # alone of their kind: nothing in the results tells that they should be there


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store with results of every kind, and its design."""
    folder = tmp_path_factory.mktemp("layout")
    text = edited(DESIGN, "[profiles.quick]", FIGURES + "[profiles.quick]")
    text = edited(text, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5, 0.7, 1.0]")
    text = edited(text, "[grids.angles.factors]", "[grids.angles]\nby_query = true\n[grids.angles.factors]")
    path = write_design(folder, text)
    run(path, output=folder / "out", executor="serial")
    return Store(folder / "out" / "tiny" / "quick"), path


@pytest.fixture(scope="module")
def results(stored):
    return read_results(stored[0].folder / "results.nc")


def refusal(results: xr.Dataset, folder) -> str:
    """What `open_results` says of them; it must be one line."""
    path = Store(folder).write_dataset("results.nc", results)
    with pytest.raises(UserError) as raised:
        open_results(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ") and message.isprintable()
    return message


def told(results: xr.Dataset) -> str:
    """What is said of them before they reach a disk: writing and reading a file a hundred times takes a minute."""
    with pytest.raises(UserError) as raised:
        require_layout(results, Path("results.nc"))
    message = str(raised.value)
    assert message.startswith("results.nc: ") and message.isprintable()
    return message


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.rare)], ids="each {}".format)
def test_any_variable_that_is_missing__is_named(results, tmp_path, step):
    names = sorted(results.data_vars.keys() - OPTIONAL)
    assert len(names) > 70
    for name in names[::step]:
        # Of the looks nothing else tells: their numbers are left without anything along them.
        assert f"no {name};" in told(results.drop_vars(name)).replace(", nothing along look;", ";")
    assert f"no {name};" in refusal(results.drop_vars(name), tmp_path)


def test_any_coordinate_or_attribute_that_is_missing__is_named(results):
    factors = {factor for names in factors_of(results).values() for factor in names}
    for name in [*factors, "seed", "batch_size", "source", "index", "look"]:
        assert f" {name}" in told(results.drop_vars(name)).partition("): ")[2]
    for name in ATTRIBUTES:
        without = {key: value for key, value in results.attrs.items() if key != name}
        expected = "not the results of a study" if name == "factors" else f"no attribute {name};"
        assert expected in told(results.drop_attrs(deep=False).assign_attrs(without))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.isel(cell=slice(0, 3)),
        lambda r: r.isel(claim=[]),
        lambda r: r.assign_coords(claim=["mse-rises"]),
        lambda r: r.assign_coords(angle=r.angle + 1.0),
        lambda r: r.assign_coords(figure=["least", "most"]),
        lambda r: r.drop_vars("optimum_share"),
        lambda r: r.assign_attrs(factors="corners: angle, bandwidth"),
    ],
    ids=["cells", "no-claim", "claim", "angle", "figure", "share", "grid"],
)
def test_results_with_other_contents_than_the_design__get_no_report(stored, results, tmp_path, change):
    with pytest.raises(UserError, match="lacks cells, claims or figures of the design; run the study again"):
        require_same_design(change(results), load_design(stored[1]), Store(tmp_path))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda r: r.rename(mse="risk", mse_mcse="risk_mcse"), "no mse, no mse_mcse, unknown risk, unknown risk_mcse;"),
        (lambda r: r.rename(optimum_share="least_share"), "unknown least_share;"),
        (lambda r: r.assign(mse=r.mse.sel(source="exact", drop=True)), "mse along (cell) instead of (source, cell);"),
        (lambda r: r.assign_coords(source=["empirical", "exact", "first"]), "other names along source;"),
        (lambda r: r.isel(index=slice(0, 5)), "other names along index;"),
        (
            lambda r: r.drop_vars([n for n, v in r.data_vars.items() if {"claim", "comparison"} & {*v.dims}]),
            "nothing along claim, nothing along comparison;",
        ),
        (lambda r: r.assign(kernel_gap=r.mse), "unknown kernel_gap;"),
        (lambda r: r.rename(index="kind"), " and 1 more; run the study again"),
        (lambda r: r.drop_vars("look"), "no names along look;"),
        (lambda r: r.assign_attrs(design_hash=7.0), "attribute design_hash is not text;"),
        (lambda r: r.assign_attrs(title=[1.0, 2.0]), "attribute title is not text;"),
        (lambda r: r.assign_attrs(factors="angles: bandwidth, slope"), "no slope along cell;"),
        (lambda r: r.assign(mse=r.mse.astype(str).astype(object)), "mse of type object;"),
        (lambda r: r.assign(statement=r.p_against), "statement of type float64;"),
        (lambda r: r.assign(n_failed=r.n_failed * 0.5), "n_failed of type float64;"),
        (lambda r: r.assign(verdict=r.verdict.where(False, "true")), "verdict 'true';"),
        (lambda r: r.assign_coords(grid=r.angle), "grid of type float64;"),
        (lambda r: r.assign_attrs(simstudy_version="0.0.9\n", commit="").drop_vars("mse"), "(0.0.9\\n, commit unk"),
    ],
)
def test_other_layouts__are_told(results, change, expected):
    assert expected in told(change(results))
