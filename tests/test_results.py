"""Loading results and laying them out by factor: every cell at its place, no holes."""

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, write_design
from builders_results import build_design, build_results

from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution.store import Store
from simstudy.results import factors_of, open_results, to_grid
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
    for name, coordinate in made_up.coords.items():
        assert coordinate.attrs["long_name"] and ("units" in coordinate.attrs) == (coordinate.dtype.kind not in "OU"), (
            name
        )


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
