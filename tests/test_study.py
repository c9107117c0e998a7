"""Whole small studies: the same bits on every executor, after every interruption; other random numbers confirm them."""

import hashlib
import json
import os
from pathlib import Path

import numba
import pytest
import xarray as xr
from builders import DESIGN, UNCLAIMED, edited, loaded, refuses, run, varied, write_design
from stored import batches, contents, remove

import simstudy
from simstudy import __main__ as process
from simstudy.data import addresses
from simstudy.data.addresses import Role
from simstudy.design.load import declared, load_design
from simstudy.design.measures import INDICES, MEASURES, VARIABLES
from simstudy.errors import UserError
from simstudy.execution.store import store_of
from simstudy.kernels import compiled
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured
from simstudy.report.page import write_report
from simstudy.report.tables import estimator_words
from simstudy.results import cells_of, read_results, tree_of


@pytest.mark.parametrize(("executor", "workers"), [("threads", 3), ("processes", 2)])
@pytest.mark.usefixtures("warm_processes")
def test_executors__give_the_same_bits(tiny, tmp_path, executor, workers):
    before = compiled.digest(), {**os.environ}
    results = run(tiny.design, output=tmp_path, executor=executor, workers=workers)
    # What tells how a run went (time, memory, executor) is one attribute, and the only one that may differ.
    xr.testing.assert_identical(*(each.assign_attrs(run="") for each in (tiny.results, results)))
    assert batches(tiny.output) == batches(tmp_path)
    # What is compiled from now on is found where it was before, and processes that are started have the same variables.
    numba.config.reload_config()
    assert (compiled.digest(), {**os.environ}) == before


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
    levels = {"control": ["none", "expansion"], "n_keys": [2, 40], "angle": [45], "bandwidth": [0.8]}
    design = loaded(tmp_path, varied(UNCLAIMED, **levels))
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
    text = varied(bandwidth=[0.5, 0.7, 1.0])
    text += """[figures]
least = { title = "Optimal bandwidth", kind = "optimum", grid = "angles", y = "mse", x = "angle", over = "bandwidth" }
order = { title = "Wrong pairs", kind = "ordering", grid = "angles", y = "mse" }
"""
    command = [str(write_design(tmp_path, text)), "--output", str(tmp_path / "out")]
    assert process.command(["run", *command, "--executor", "serial"]) == 0
    first = contents(folder := tmp_path / "out" / "tiny" / "quick")
    files = {"cells.csv", "verdicts.csv", "comparisons.csv", "report.html", "figures/least.png", "figures/mse.png"}
    assert files <= first.keys() and b"mse-falls" in first["verdicts.csv"] and b"mse-falls" in first["comparisons.csv"]
    (folder / "report.html").unlink()  # without it all is drawn again
    assert process.command(["report", *command]) == 0 and contents(folder) == first


def test_provenance__names_code_libraries_and_time(tiny):
    record = json.loads((store_of(tiny.design, tiny.output).folder / "provenance.json").read_text())
    assert record["design"] == DESIGN and (ran := record["run"]) == json.loads(tiny.results.attrs["run"])
    assert ran["executor"] == "serial" and ran["workers"] == 1 and ran["processor"]
    assert ran["wall_seconds"] > 0.0 < ran["cpu_seconds"] and ran["peak_memory_MiB"] > 50
    assert ran["batches_computed"] == int(tiny.results.n_batches.sum())
    assert record["design_hash"] == hashlib.sha256(DESIGN.encode()).hexdigest() and record["seed"] == "7"
    assert record["device"] == ran["device"] == "CPU" and record["simstudy"]
    assert record["libraries"]["numba"] and record["engine"] == tiny.results.attrs["engine"]


def test_unwritable_output_and_missing_libraries__are_found_before_anything_is_computed(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("simstudy.execution.executors.simulate_batch", None)
    with pytest.raises(TypeError, match="not callable"):  # the control: without an obstacle a batch is computed
        run(tiny.design, output=tmp_path / "free", executor="serial")
    (tmp_path / "file").write_text("in the way")
    for output in (tmp_path / "file", f"{tmp_path}/a\0b", Path("/proc/nowhere")):  # where not even root may write
        with pytest.raises(UserError, match=r"cannot be written \(.*\); free space, fix permissions or name another"):
            run(tiny.design, output=output, executor="serial")
    design = loaded(tmp_path, varied(reference="torch_multi_head_attention"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for compute in (run, simstudy.plan):
        refuses(r"torch is not installed; pip install", compute, design, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folder_that_becomes_a_link_after_a_run__is_not_read(tmp_path, monkeypatch):
    place, design = tmp_path / "tiny", loaded(tmp_path)
    run(design, output=tmp_path, executor="serial")

    def read_after_exchange(store):
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        return read_results(store)

    monkeypatch.setattr("simstudy.study.read_results", read_after_exchange)
    refuses("a link", run, design, output=tmp_path, executor="serial")


EVERYTHING = """
study = { name = "everything", title = "Every kind of random number of heads", aim = "To test." }
data = { n_keys = 12, n_features = 4 }
heads = { n_heads = 2, head_dim = 2, arrangement = "haar" }
estimator = { bandwidth = 0.8 }
queries = { queries = { kind = "gaussian", count = 3 } }
simulation = { seed = 7, batch_size = 16, noise_treatment = "drawn" }
profiles.quick = {}
[grids.draws.factors]
head_seed = [0, 1]
arrangement = ["haar", "haar_redrawn"]
query_projections = ["same", "haar"]
[grids.keys.factors]
key_distribution = [{ kind = "student_t", df = 5 }, "mixture", { kind = "gaussian", structure = "equicorrelated" }]
[grids]
vectors.settings.arrangement = "aligned"
vectors.settings.value_projections = { kind = "random", n_components = 3, value_dim = 2 }
trees.settings = { arrangement = "aligned", learner = "random_forest" }
rows.settings = { arrangement = "aligned", population = ["rows"], n_features = 5 }
rows.factors.key_distribution = [{ kind = "file", path = "sklearn:iris" }]
seeds.factors = { seed = [7, 8], noise_sd = [0.5, 1.0] }
[claims.by-seed]
statement = "A claim that selects by seed."
kind = "larger_than"
grid = "seeds"
measure = "mse"
versus = { noise_sd = 0.5 }
[figures]
by-seed = { title = "By seed", kind = "curve", grid = "seeds", x = "noise_sd", y = "mse" }
"""


def streams_of(design, monkeypatch) -> list[set]:
    """Streams and roles of the random numbers of each cell."""
    drawn: set = set()
    filled = addresses.Drawn.__array__

    def record(numbers, *given, **how):
        *stream, role, _ = map(int, numbers.address)
        drawn.add((tuple(stream), Role(role)))
        return filled(numbers, *given, **how)

    each = []
    with monkeypatch.context() as patched:
        patched.setattr(addresses.Drawn, "__array__", record)
        for planned in design.cells:
            drawn.clear()
            measured(planned.cell, simulate_batch([planned.cell], 0))
            each.append(set(drawn))
    return each


def test_confirmation__draws_no_random_number_of_the_run_and_changes_nothing_else(tmp_path, monkeypatch):
    design = load_design(write_design(tmp_path, EVERYTHING))
    assert all(planned.cell.data_id for planned in design.cells)  # cells remember it: a copy must not
    refuses("confirm = 3: cannot be shown; give a text", load_design, tmp_path / "design.toml", confirm=3)
    confirmed = load_design(tmp_path / "design.toml", confirm="a text")
    old, new = (streams_of(each, monkeypatch) for each in (design, confirmed))
    assert {role for cell in old for _, role in cell} == set(Role) - {Role.INSTANCE}
    assert not {stream for cell in old for stream, _ in cell} & {stream for cell in new for stream, _ in cell}
    # Cells that shared random numbers still do, and no others: pairing is as it was.
    assert [[bool(a & b) for b in new] for a in new] == [[bool(a & b) for b in old] for a in old]
    for cells in zip(confirmed.cells, design.cells, strict=True):
        assert len({each.cell.model_dump_json(exclude={"simulation": {"seed"}}) for each in cells}) == 1
    assert max({cell.cell.simulation.seed for cell in confirmed.cells}) < 2**63
    by_seed = edited(EVERYTHING, "versus = { noise_sd", "where = { seed = 7 }\nversus = { noise_sd")
    both = [load_design(write_design(tmp_path, by_seed), confirm=text) for text in (None, "a text")]
    chosen = [[of.cell.simulation.seed == each.claims["by-seed"].where["seed"] for of in each.cells] for each in both]
    assert any(chosen[0]) and chosen[0] == chosen[1]
    assert declared(by_seed, "quick", both[1].confirmation.digest).claims == both[1].claims


def test_confirm__has_its_own_folder_resumes_there_and_leaves_the_run_as_it_was(tmp_path, tiny, in_process):
    path, output = write_design(tmp_path), tiny.copied(tmp_path / "out")
    study = output / "tiny" / "quick"
    before = {each: each.read_bytes() for each in study.rglob("*") if each.is_file()}
    for text in ("", " ", "a\x1b[2Jb", "two\nlines"):  # which cannot be shown
        ran = in_process("run", path, "--confirm", text, "--output", tmp_path / "new")
        assert ran.returncode == 2 and ran.stderr.startswith("error: confirm = ") and not (tmp_path / "new").exists()

    def confirm(text: str):
        ran = in_process("run", path, "--confirm", text, "--output", output, "--executor", "serial")
        assert ran.returncode in (0, 5), ran.stderr
        (digest,) = {each.name for each in (study / "confirmed").iterdir()} & set(ran.stdout.split())
        assert f"confirmed with the text {text!r}: {digest}" in " ".join(ran.stdout.split())
        return study / "confirmed" / digest, cells_of(simstudy.open_results(study / "confirmed" / digest))

    folder, first = confirm("a text")
    assert len(folder.name) == 16 and int(folder.name, 16)
    assert (first.attrs["confirmation_text"], first.attrs["confirmation_digest"]) == ("a text", folder.name)
    assert "Confirmed with the text “a text”" in (folder / "report.html").read_text()
    whole = batches(folder)
    for name in list(whole)[::2]:
        remove(folder, name)
    assert len(batches(folder)) < len(whole)
    again = confirm("a text")
    assert again[0] == folder and again[1].assign_attrs(run="").identical(first.assign_attrs(run=""))
    assert batches(folder) == whole
    path.write_text(varied(title="A changed study"))
    others = [confirm("a text"), confirm("another text")]
    assert len({folder, *(each for each, _ in others)}) == 3
    assert len({float(each.mse[0, 0]) for each in (tiny.results, first, *(results for _, results in others))}) == 4
    assert before == {each: each.read_bytes() for each in before} and not tiny.results.attrs["confirmation_text"]
