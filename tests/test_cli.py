"""The command line, run as a user runs it, also from the wheel by whoever has the dependencies alone."""

import importlib.metadata
import json
import operator
import os
import signal
import subprocess
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer
import xarray as xr
from builders import DESIGN, UNCLAIMED, varied, write_design
from commands import ROOT, command, environment, python, simstudy
from pages import lacking
from stored import rows

import simstudy as package
from simstudy import __main__ as process
from simstudy.commands import app
from simstudy.data import training
from simstudy.design import load
from simstudy.execution.store import Store


def test_help__teaches_and_list_and_check_know_the_shipped_designs(capsys, in_process, monkeypatch):
    for name in ("", *typer.main.get_group(app).commands):
        assert process.command([*name.split(), "--help"]) == 0
        said = capsys.readouterr().out
        assert "Usage" in said and "..." not in said.partition("COMMAND [ARGS]...")[2]
    with monkeypatch.context() as patch:  # to check all of them takes long; `test_load` does
        patch.setattr("simstudy.design.load.check", None)
        listed = in_process("list")
    names = [path.parent.name for path in load.known_designs()]
    assert listed.returncode == 0 and len(names) > 20 and all(f"│ {name} " in listed.stdout for name in names)
    checked = in_process("check", "principal-angles")
    assert checked.returncode == 0 and "full" in checked.stdout


IMPORTED = "import sys; from simstudy.__main__ import command; command(sys.argv[1:]); print(*sys.modules)"
"""Code that runs a command, and prints the modules that it has imported."""


def test_help_status_and_run__import_nothing_that_is_slow_in_vain(tmp_path, tiny, monkeypatch):
    slow = {"pydantic", "numpy", "scipy", "xarray", "numba", "dask", "distributed", "matplotlib", "rich"}
    for argument, needed in (("--help", set()), ("--version", {"rich"})):
        ended = python("-c", IMPORTED, argument)
        assert ended.returncode == 0 and slow & set(ended.stdout.split()) == needed
    path, output = write_design(tmp_path), tiny.copied(tmp_path / "out")
    (output / "tiny" / "quick" / "results.nc").unlink()  # as of a run that was killed before
    shown = python("-c", IMPORTED, "status", path, "--output", output).stdout
    slow = {"dask", "xarray", "pandas", "netCDF4", "matplotlib", "simstudy.theory", "numba", "scipy.special"}
    assert "6 of 6 cells finished" in shown and not slow & set(shown.split())
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as Jupyter does
    loaded = {*python("-c", IMPORTED, "run", path, "--output", tmp_path / "new").stdout.split()}
    assert {"numba", "xarray", "matplotlib"} < loaded
    # What takes a tenth of a short run.
    assert not {"scipy.stats", "scipy.optimize", "scipy.ndimage", "dask.array", "joblib", "distributed"} & loaded


def test_verdicts__are_shown_before_anything_is_drawn(tmp_path):
    drawn = "from simstudy.report import page; page.write_report = lambda *_: print('drawn')\n"
    path = write_design(tmp_path)
    result = simstudy("run", path, "--output", tmp_path / "out", before=drawn)
    answer, counts, *_, page = result.stdout.splitlines()
    assert answer.startswith("The error falls: undecided, as expected") and counts.startswith("1 claim: ")
    assert result.stdout.index("cells, ") < result.stdout.index("drawn") and page.endswith("report.html")
    assert len(result.stdout.splitlines() + result.stderr.splitlines()) <= 5 + 1
    told = simstudy("run", path, "--output", tmp_path / "out", "--claims")
    assert "mse-falls" in told.stdout and "mse-falls" not in result.stdout


def test_plan_and_replay__in_turn(in_process, tmp_path):
    path, output = write_design(tmp_path), tmp_path / "out"
    planned = in_process("plan", path, "--output", output, "--workers", "64")
    assert planned.returncode == 0, planned.stderr
    assert "left on 64 such workers" in planned.stdout and "angles" in planned.stdout
    assert len(rows(output)) == 24 and not (output / "tiny" / "quick" / "results.nc").exists()
    rebuilt = in_process("replay", path, "--output", output, "--cell", 2, "--replicate", "17")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "replicate 17 of cell 2: defined" in rebuilt.stdout and "head_estimate" in rebuilt.stdout
    with xr.open_dataset(output / "tiny" / "quick" / "replays" / "cell-2-replicate-17.nc") as stored:
        assert stored["keys"].shape == (6, 40) and stored.attrs["angle"] == "45.0"
    way = "Invalid value for '--jobs': Input should be greater than or equal to 1 (see simstudy submit --help)"
    for (asked, *options), told in (
        (("replay", "--cell", "99", "--replicate", "0"), ""), (("replay", "--cell", "0", "--replicate", "-1"), ""),
        (("replay", "--cell", "0", "--replicate", str(2**56)), ""), (("run", "--share", "9/4"), ""),
        (("submit", "--jobs", "0"), way),
    ):  # fmt: skip
        result = in_process(asked, path, *options, "--output", tmp_path / "new")
        assert result.returncode == 2 and result.stderr.startswith("error: ") and told in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1 and not (tmp_path / "new").exists()


def test_run_in_use_and_bad_designs__are_told_and_nothing_is_written(in_process, tmp_path):
    with Store(tmp_path / "tiny" / "quick").locked():
        shown = in_process("status", write_design(tmp_path), "--output", tmp_path)
        assert shown.returncode == 0 and f"process {os.getpid()} on" in shown.stdout
    path = write_design(tmp_path, varied(n_keys=-1))
    for asked in ("run", "check", "status", "report"):
        result = in_process(asked, path, *([] if asked == "check" else ["--output", tmp_path / "out"]))
        assert result.returncode == 2
        assert "Traceback" not in result.stderr and "data.n_keys = -1" in result.stderr
    assert not (tmp_path / "out").exists()
    for name, text in zip("abcd", (varied(n_keys=-1), DESIGN.partition("[profiles")[0], DESIGN, "["), strict=True):
        write_design(tmp_path / "all" / name, text)
    result, nowhere = in_process("list", tmp_path / "all"), in_process("list", 300 * "a")
    assert result.returncode == 0 and result.stderr == "" and "holds no study folders" in nowhere.stderr
    assert result.stdout.count("A tiny study") == 2 and result.stdout.count("has mistakes") == 2


def test_undefined_estimates__are_named_as_the_reason(in_process, tmp_path, monkeypatch):
    """No design that passes the check makes every replicate fail, so keys without values are put in its place."""
    path, output = write_design(tmp_path), tmp_path / "out"
    monkeypatch.setattr(training, "draw_keys", lambda *given, draw=training.draw_keys: float("nan") * draw(*given))
    result = in_process("run", path, "--output", output, "--executor", "serial")
    assert result.returncode == 3, result.stderr
    assert "6 cells short of the target" in result.stderr and "undefined estimates" in result.stderr
    shown = in_process("status", path, "--output", output).stdout
    assert shown.count("estimates undefined") == 6 and "ceiling" not in result.stderr + shown


def test_report__shows_no_verdicts_of_another_design(in_process, tiny, tmp_path):
    path = write_design(tmp_path, varied(aim="To test something else."))
    result = in_process("report", path, "--output", tiny.copied(tmp_path / "out"))
    assert result.returncode == 2 and "run the study again" in result.stderr and "mse-falls" not in result.stdout
    assert not (tmp_path / "out" / "tiny" / "quick" / "report.html").exists()
    result = in_process("report", write_design(tmp_path).parent, "--output", tmp_path / "out")
    assert result.returncode == 0 and result.stdout.startswith("The error falls: undecided, as expected (")


def test_interrupt__ends_cleanly_and_status_knows_that_nobody_runs_it(tmp_path):
    path, output = write_design(tmp_path, varied(n_keys=20_000, mse=1e-4, max_replicates=1 << 20)), tmp_path / "out"
    ran, pipe = command("run", path, "--output", output), subprocess.PIPE
    process = subprocess.Popen(ran, stdout=pipe, stderr=pipe, text=True, env=environment())
    while process.poll() is None and not rows(output):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130, messages
    assert "run the same command again" in messages and "Traceback" not in messages
    stored = simstudy("status", path, "--output", output)
    assert stored.returncode == 0 and "0 of 6 cells finished" in stored.stdout and "no process runs it" in stored.stdout


@pytest.fixture
def here(in_process, monkeypatch, tmp_path):
    """A command in a folder of its own: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: operator.attrgetter("returncode", "stdout", "stderr")(in_process(*arguments))


def test_init__writes_a_design_that_checks_and_nothing_over_another(here, tmp_path):
    assert here("init", "my-question")[0] == 0
    text = (tmp_path / "my-question" / "design.toml").read_text()
    assert tomllib.loads(text)["study"]["name"] == "my-question" and "my-study" not in text
    place = "my-question/design.toml"
    told = f"{place}: quick: 8 cells, 2 claims\n{place}: full: 8 cells, 2 claims\n"
    assert here("check", "my-question")[:2] == (0, told)
    (tmp_path / place).write_text("mine")
    code, _, errors = here("init", "my-question")
    assert code == 2 and errors.startswith("error: my-question: cannot be written (File exists); give another")
    assert (tmp_path / place).read_text() == "mine" and here("init", "../elsewhere")[0] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"my-question"}
    code, told, _ = here("init", "other", "--functions")
    said = [line.partition("simstudy ")[2].split() for line in told.splitlines() if "simstudy " in line]
    assert code == 0 and [here(*each)[0] for each in said] == [0, 0]


@pytest.mark.parametrize("name, told", [
    ("", ("[data]", "n_keys", "[claims.NAME]", "- coverage:")), ("heads", ("arrangement", "- none, disjoint: ")),
    ("noise", ("- student_t: ", "heavy-tailed")), ("ridge", ("amplitude = 1.0",)), ("measures", ("- mse:",)),
    ("mse", ("mean squared error of the combined estimate",)), ("larger_than", ("versus", "(ratio)")),
    ("disjoint", ("- none, disjoint: ",)), ("regresion", ('did you mean "regression"?',)),
    ("noise_sd", ("Data-generating", "noise_sd = 1.0")), ("where", ("In all kinds: ", "= supported (contradicted, ")),
    ("no word", ("known: study, ", ", value_projections, none, disjoint, random, learner, logits, ")),
])  # fmt: skip
def test_describe__says_what_records_say(here, name, told):
    code, shown, errors = here(*["describe", name][: 1 + bool(name)])
    assert (code, bool(shown)) == ((2, False) if errors else (0, True)) and all(each in shown + errors for each in told)


def test_json__has_the_keys_of_the_documentation(here, tmp_path):
    path = write_design(tmp_path / "tiny")
    assert here("plan", path)[0] == 0
    found = json.loads(here("status", path, "--json")[1])
    cell = found["cells"][2]
    assert cell["levels"] == {"angle": 45.0, "bandwidth": 0.5} and cell["replicates"] == 128
    assert found["process"] is None and found["seconds_left"] is None
    for keys in (found, *(part[0] for part in found.values() if isinstance(part, list))):
        told = [f"`{key}`" for key in keys]
        assert not lacking("simstudy/docs/clusters.md", *told, below="## Output for other programs")


def test_study_without_claims__shows_its_measures_and_no_command_the_help_line_by_line(here, tmp_path):
    code, shown, _ = here("run", write_design(tmp_path, UNCLAIMED), "--executor", "serial", "--claims")
    assert code in (0, 3) and shown.startswith("mean squared error [Y²]: 0.") and "Verdicts" not in shown
    code, shown, errors = here()
    assert (code, errors) == (2, "") and shown == here("--help")[1] and "\\n" not in shown
    assert here("--version") == (0, f"simstudy {package.__version__}\n", "")
    assert package.__version__ == importlib.metadata.version("simstudy")


# In one process, as each imports for seconds, and the new design with fewer replicates.  The heads of the other one
# are in files.
COMMANDS = """
import sys
from pathlib import Path
for extra in ("dask", "distributed", "cryptography", "dask_jobqueue", "sklearn", "pyarrow", "torch"):
    sys.modules[extra] = None
from simstudy.__main__ import command
from simstudy.design.load import known_designs
print(*known_designs(), sep="\\n")
assert command(["status", "diversity-index", "--json"]) == 0 and not list(Path().iterdir())
assert command(["init", "my-question"]) == 0
new = Path("my-question/design.toml")
new.write_text(new.read_text().replace("0.02", "0.2").replace("population =", "# population ="))
raise SystemExit(command(["run", "my-question", "--workers", "1"]))
"""


def test_wheel__holds_its_notes_and_shipped_designs_that_are_found_by_name_and_a_new_one_is_written_and_run(tmp_path):
    built = python("-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installed, here = tmp_path / "installed", tmp_path / "here"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(installed)
    held = {path.name for path in (installed / "simstudy").iterdir()}
    assert {"CITATION.cff", "README.md", "py.typed"} <= held and "docs" not in held
    here.mkdir()
    ended = python("-c", COMMANDS, cwd=here, env=environment(PYTHONPATH=str(installed)))
    assert ended.returncode in (0, 5), ended.stdout + ended.stderr  # verdicts of so few replicates may be others
    shown, _, status = ended.stdout.partition("{")
    designs = {Path(line) for line in shown.splitlines()}
    assert {path.parent.name for path in designs} == {path.parent.name for path in ROOT.glob("designs/*/design.toml")}
    assert {path.parents[1] for path in designs} == {installed / "simstudy" / "designs"}
    cells, _ = json.JSONDecoder().raw_decode("{" + status)
    assert len(cells["cells"]) > 500 and (here / "outputs" / "my-question" / "quick" / "report.html").exists()
    assert not (here / ".partial").exists()
