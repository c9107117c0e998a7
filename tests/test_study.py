"""Whole small studies: the same bits on every executor and after every interruption, and labelled as promised."""

import hashlib
import json
from pathlib import Path

import numba
import pytest
import xarray as xr
from builders import DESIGN, FIGURES, edited, loaded, refuses, run, write_design
from stored import batches, contents

import simstudy
from simstudy import __main__ as process
from simstudy.design.measures import INDICES, MEASURES, VARIABLES
from simstudy.errors import UserError
from simstudy.execution.store import store_of
from simstudy.kernels import compiled
from simstudy.report.page import write_report
from simstudy.report.tables import estimator_words
from simstudy.results import cells_of, read_cells, tree_of


@pytest.mark.parametrize(("executor", "workers"), [("threads", 3), ("processes", 2)])
@pytest.mark.usefixtures("warm_processes")
def test_executors__give_the_same_bits(tiny, tmp_path, executor, workers):
    names = compiled.digest()
    results = run(tiny.design, output=tmp_path, executor=executor, workers=workers)
    # What tells how a run went (time, memory, executor) is one attribute, and the only one that may differ.
    xr.testing.assert_identical(*(each.assign_attrs(run="") for each in (tiny.results, results)))
    assert batches(tiny.output) == batches(tmp_path)
    # What is compiled from now on is found where it was before.
    numba.config.reload_config()
    assert compiled.digest() == names


def test_results__open_with_xarray_alone_and_explain_themselves(tiny):
    _, results, output = tiny
    path = output / "tiny" / "quick" / "results.nc"
    with xr.open_datatree(path) as opened:
        xr.testing.assert_equal(opened.load(), tree_of(results))
    assert set(MEASURES) | {f"{name}_mcse" for name in MEASURES} | {"hdi", "hdi_mcse"} <= set(results)
    assert results.index.values.tolist() == list(INDICES)
    for name, variable in results.data_vars.items():
        assert variable.dims == VARIABLES[name].dims
        assert variable.attrs["long_name"] and variable.attrs["units"]
    assert results.attrs["design"] == DESIGN
    xr.testing.assert_identical(cells_of(output / "tiny" / "quick"), cells_of(path))


def test_results__say_which_estimator_each_cell_rests_on(tmp_path):
    """And a plain arm beside the expansion has the same numbers but for errors, of the same data."""
    factors = 'angle = [45]\nn_keys = [2, 40]\ncontrol = ["none", "expansion"]'
    text = DESIGN.partition("[claims")[0] + "[profiles.quick]\n"
    text = edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", factors)
    design = loaded(tmp_path, text)
    results = run(design, output=tmp_path, executor="serial")
    few = "at some query point few keys carry weight, where a control variate would have heavy tails"
    assert results.control_variate.values.tolist() == ["plain", f"plain: {few}", "plain", "expansion"]
    plain, found = results.mse.values[0, 2:], results.mse_mcse.values[2:]
    assert abs(plain[1] - plain[0]) < 4 * found[0] and found[1] < found[0] / 3
    told = f"plain (2 cells); plain: {few} (1 cell); averages over replicates minus an expansion of known mean (1 cell)"
    assert estimator_words(results) == told
    page = write_report(results, design, store_of(design, tmp_path)).read_text(encoding="utf-8")
    assert f"Estimator: {estimator_words(results)}." in page


def test_report_after_a_run__writes_the_same_bytes(tmp_path):
    text = edited(DESIGN, "[profiles.quick]", FIGURES + "[profiles.quick]")
    text = edited(text, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5, 0.7, 1.0]")
    command = [str(write_design(tmp_path, text)), "--output", str(tmp_path / "out")]
    assert process.command(["run", *command, "--executor", "serial"]) == 0
    first = contents(tmp_path / "out" / "tiny" / "quick")
    files = {"cells.csv", "verdicts.csv", "comparisons.csv", "report.html", "figures/least.png", "figures/mse.png"}
    assert files <= first.keys() and b"mse-falls" in first["verdicts.csv"] and b"mse-falls" in first["comparisons.csv"]
    folder = tmp_path / "out" / "tiny" / "quick"
    (folder / "report.html").unlink()  # without it all is drawn again
    assert process.command(["report", *command]) == 0
    assert contents(folder) == first


def test_provenance__names_code_libraries_and_time(tiny):
    record = json.loads((store_of(tiny.design, tiny.output).folder / "provenance.json").read_text())
    assert record["design"] == DESIGN
    assert record["run"] == json.loads(tiny.results.attrs["run"])
    assert record["run"]["executor"] == "serial" and record["run"]["workers"] == 1
    assert record["run"]["wall_seconds"] > 0.0 < record["run"]["cpu_seconds"] and record["run"]["peak_memory_MiB"] > 50
    assert record["run"]["batches_computed"] == int(tiny.results.n_batches.sum())
    assert record["design_hash"] == hashlib.sha256(DESIGN.encode()).hexdigest() and record["seed"] == "7"
    assert record["device"] == record["run"]["device"] == "CPU" and record["run"]["processor"]
    assert record["simstudy"]
    assert record["libraries"]["numba"] and record["engine"] == tiny.results.attrs["engine"]


def test_unwritable_output__is_found_before_anything_is_computed(tiny, tmp_path, monkeypatch):
    def computed(*_):
        raise AssertionError("computed")

    monkeypatch.setattr("simstudy.execution.executors.simulate_batch", computed)
    with pytest.raises(AssertionError):  # the control: without an obstacle a batch is computed
        run(tiny.design, output=tmp_path / "free", executor="serial")
    (tmp_path / "file").write_text("in the way")
    for output in (tmp_path / "file", f"{tmp_path}/a\0b", Path("/proc/nowhere")):  # where not even root may write
        with pytest.raises(UserError, match=r"cannot be written \(.*\); free space, mend permissions or name another"):
            run(tiny.design, output=output, executor="serial")


def test_folder_that_becomes_a_link_after_a_run__is_not_read(tmp_path, monkeypatch):
    place, design = tmp_path / "tiny", loaded(tmp_path)
    run(design, output=tmp_path, executor="serial")

    def read_after_exchange(store):
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        return read_cells(store)

    monkeypatch.setattr("simstudy.study.read_cells", read_after_exchange)
    refuses("a link", run, design, output=tmp_path, executor="serial")


def test_pytorch__is_asked_for_before_anything_is_written(tmp_path, monkeypatch):
    text = edited(DESIGN, "bandwidth = 0.8\n", 'bandwidth = 0.8\nreference = "torch_multi_head_attention"\n')
    design = loaded(tmp_path, text)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for compute in (run, simstudy.plan):
        refuses(r"torch is not installed; pip install", compute, design, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
