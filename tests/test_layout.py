"""Results that another version has written: one line that says what differs, never a KeyError on the way."""

from pathlib import Path

import pytest
import xarray as xr
from builders import DESIGN, FIGURES, edited, write_design
from commands import simstudy

from simstudy import open_results, run
from simstudy.design.load import load_design
from simstudy.design.measures import ATTRIBUTES
from simstudy.errors import UserError
from simstudy.execution.store import Store, read_results
from simstudy.report.page import require_same_design
from simstudy.results import require_layout

OPTIONAL = {"optimum_share", "estimator"}  # alone of their kind: nothing in the results tells that they should be there


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store with results of every kind but random instances, and its design."""
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


def test_results_of_this_version__are_opened(stored):
    results = open_results(stored[0].folder)
    assert {"optimum_share", "wrong_pair_share", "verdict"} <= results.keys()
    assert set(results.attrs) == set(ATTRIBUTES)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.rare)], ids="each {}".format)
def test_any_variable_that_is_missing__is_named(results, tmp_path, step):
    names = sorted(results.data_vars.keys() - OPTIONAL)
    assert len(names) > 70
    for name in names[::step]:
        # Of the looks nothing else tells: their numbers are left without anything along them.
        assert f"no {name};" in told(results.drop_vars(name)).replace(", nothing along look;", ";")
    assert f"no {name};" in refusal(results.drop_vars(name), tmp_path)


def test_any_coordinate_or_attribute_that_is_missing__is_named(results):
    for name in results.coords.keys() - {"grid", "claim", "figure"}:
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
        (lambda r: r.assign(kernel_gap=r.mse), "no kernel_gap_mcse, no kernel_gap_mcse_given;"),
        (lambda r: r.rename(index="kind"), " and 2 more; run the study again"),
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


def test_report_of_an_earlier_version__is_one_line_and_leaves_everything_as_it_was(stored):
    store, design = stored
    whole, old = store.folder / "results.nc", ["failure_rate", "failure_rate_mcse"]
    content, report = whole.read_bytes(), ("report", design, "--output", store.folder.parents[1])
    store.write_dataset("results.nc", read_results(whole).drop_vars(old))
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    outcome = simstudy(*report)
    assert {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()} == before
    store.files.write("results.nc", content)
    assert outcome.returncode == 2 and outcome.stdout == ""
    assert len(outcome.stderr.strip().splitlines()) == 1
    for expected in ("results.nc: laid out by another version", "no failure_rate, no failure_rate_mcse", "again"):
        assert expected in outcome.stderr
    again = simstudy(*report)
    assert again.returncode == 0 and "mse-falls" in again.stdout
