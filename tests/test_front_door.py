"""The first commands of a new user: help with writing a design, answers for other programs, and what messages say."""

import importlib.metadata
import json
import tomllib

import pytest
from builders import DESIGN, edited, mistakes, run, write_design
from pages import lacking

import simstudy
from simstudy.design.load import load_design
from simstudy.execution.state import RunState
from simstudy.execution.store import Store
from simstudy.report import progress
from simstudy.report.progress import ProgressDisplay


@pytest.fixture
def command(in_process, monkeypatch, tmp_path):
    """A command in this process and folder: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def outcome(*arguments: object) -> tuple[int, str, str]:
        done = in_process(*arguments)
        return done.returncode, done.stdout, done.stderr

    return outcome


def test_version_of_the_package_is_told_and_without_a_command_the_help_line_by_line(command):
    assert command("--version") == (0, f"simstudy {simstudy.__version__}\n", "")
    assert simstudy.__version__ == importlib.metadata.version("simstudy")
    code, shown, errors = command()
    assert (code, errors) == (2, "") and shown == command("--help")[1] and "\\n" not in shown


def test_init__writes_a_design_that_checks_and_nothing_over_another(command, tmp_path):
    assert command("init", "my-question")[0] == 0
    text = (tmp_path / "my-question" / "design.toml").read_text()
    assert tomllib.loads(text)["study"]["name"] == "my-question" and "my-study" not in text
    place = "my-question/design.toml"
    told = f"{place}: quick: 8 cells, 2 claims\n{place}: full: 8 cells, 2 claims\n"
    assert command("check", "my-question")[:2] == (0, told)
    (tmp_path / place).write_text("mine")
    code, _, errors = command("init", "my-question")
    assert code == 2 and errors.startswith("error: my-question: cannot be written (File exists); give another")
    assert (tmp_path / place).read_text() == "mine"
    assert command("init", "../elsewhere")[0] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"my-question"}
    code, told, _ = command("init", "other", "--functions")
    said = [line.partition("simstudy ")[2].split() for line in told.splitlines() if "simstudy " in line]
    assert code == 0 and [command(*each)[0] for each in said] == [0, 0]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", ("[data]", "n_keys", "[claims.NAME]", "- coverage:")), ("heads", ("arrangement", "- none, disjoint: ")),
        ("noise", ("- student_t: ", "heavy-tailed")), ("ridge", ("amplitude = 1.0",)), ("measures", ("- mse:",)),
        ("mse", ("mean squared error of the combined estimate",)), ("larger_than", ("versus", "(ratio)")),
    ],
)  # fmt: skip
def test_describe__says_what_records_say(command, name, told):
    code, shown, _ = command(*["describe", name][: 1 + bool(name)])
    assert code == 0 and all(each in shown for each in told)
    code, shown, errors = command("describe", "regresion")
    assert (code, shown) == (2, "") and 'did you mean "regression"?' in errors


def test_json__has_the_keys_of_the_documentation(command, tmp_path):
    path = write_design(tmp_path / "tiny")
    assert command("plan", path)[0] == 0
    found = json.loads(command("status", path, "--json")[1])
    cell = found["cells"][2]
    assert cell["levels"] == {"angle": 45.0, "bandwidth": 0.5} and cell["replicates"] == 128
    assert found["process"] is None and found["seconds_left"] is None
    for keys in (found, *(part[0] for part in found.values() if isinstance(part, list))):
        told = [f"`{key}`" for key in keys]
        assert not lacking("simstudy/docs/clusters.md", *told, below="## Answers for other programs")


def test_errors__are_warnings_alone(command, tmp_path):
    text = edited(DESIGN, "mse = 0.05", "mse = 0.5")
    path = write_design(tmp_path, text)
    assert command("run", path, "--executor", "serial")[2] == ""
    path.write_text(edited(edited(text, "mse = 0.5", "mse = 0.0001"), '"undecided"', '"supported"'))
    code, _, errors = command("run", path, "--executor", "serial")
    assert code == 3 and "6 cells short of the target, furthest angles: angle = " in errors
    assert errors.count(": MCSE of mse ") == 1 and "ceiling of 512 replicates; raise" in errors
    assert command("status", path)[1].count("short of the target") == 6


def test_study_without_claims__shows_its_measures(command, tmp_path):
    text = DESIGN.partition("[claims")[0] + "[profiles.quick]\n"
    code, shown, _ = command("run", write_design(tmp_path, text), "--executor", "serial", "--claims")
    assert code in (0, 3) and shown.startswith("mean squared error [Y²]: 0.") and "Verdicts" not in shown


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('{ key_distribution = "student_t" }', 'it has key_distribution = "gaussian" or "student_t(df=3)"'),
        ("{ bandwidth = 0.7 }", "it has bandwidth = 0.5 or 1.0"),
        ('{ bandwidth = 0.5, bandwidth_rule = "fixed(value=1)" }', "but no cell has all that is selected"),
    ],
)
def test_selector_of_no_cell__is_told_the_levels_as_they_must_be_written(tmp_path, where, expected):
    levels = 'key_distribution = ["gaussian", { kind = "student_t", df = 3 }]'
    text = edited(DESIGN, "angle = [0, 45, 90]", f"angle = [0, 45, 90]\n{levels}")
    assert expected in mistakes(tmp_path, edited(text, 'measure = "mse"', f'measure = "mse"\nwhere = {where}'))


def test_time_left__is_not_told_before_every_cell_has_been_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "due", lambda began, *_: began)
    design = load_design(write_design(tmp_path))
    told: list[tuple[bool, float | None]] = []

    def watch(state: RunState, predicted: int | None = None) -> None:
        display(state, predicted)
        told.append((all(account.done for account in state.accounts), display._bar.tasks[0].total))

    with ProgressDisplay(quiet=True) as display:
        run(design, output=tmp_path / "out", executor="serial", observer=watch)
    assert {looked for looked, _ in told} == {False, True}
    assert all((total is not None) == looked for looked, total in told)
    assert Store(tmp_path / "out" / "tiny" / "quick").owner() is None


def test_last_state_of_a_run__is_shown_however_soon_it_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_SECONDS", 3600.0)
    with ProgressDisplay(quiet=True) as display:
        run(load_design(write_design(tmp_path)), output=tmp_path / "out", executor="serial", observer=display)
    (task,) = display._bar.tasks
    _, expected, *_ = display.state.standing
    assert task.completed == task.total == expected
