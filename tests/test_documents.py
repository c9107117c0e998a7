"""Documents: their commands and code blocks run, links lead somewhere, and numbers are those of runs."""

import inspect
import pydoc
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
from builders import write_design
from commands import ROOT
from commands import simstudy as command
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate
from pages import DOCUMENTS, SETTINGS, blocks, lacking, settings_page

import simstudy.theory
from simstudy import plots
from simstudy.commands import app
from simstudy.design.load import load_design, profiles_of
from simstudy.report.tables import verdict_lines
from simstudy.results import cells_of

README, DESIGNS = DOCUMENTS["README.md"], DOCUMENTS["designs/README.md"]
STUDY, OWN_DATA = "third-head", "simstudy/docs/designs.md"
ELSEWHERE = ("your-methods", "your-numbers", "tutorial")
"""Pages whose blocks need other files, or are run by tests of their own."""
REQUIRED = {"GL08", "SS01", "PR01", "PR02", "PR03", "PR07", "RT01", "RT03"}
"""Checks of numpydoc: a summary, every parameter and what is returned, each described.  Annotations give the types."""
PUBLIC = [f"simstudy.{name}" for name in (*simstudy.__all__, *(f"theory.{each}" for each in simstudy.theory.__all__))]
PUBLIC += [f"{module.__name__}.{name}" for module in (plots,) for name, value in vars(module).items()
           if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"]  # fmt: skip
ANSWERS = ("holds", "holds if", "fails", "open", "not testable here")
COMMANDS = typer.main.get_group(app).commands


def shown(document: str) -> list[list[str]]:
    """Commands of simstudy that a document shows in lines of their own, as arguments."""
    lines = re.findall(r"^    (simstudy .*)$", DOCUMENTS[document], flags=re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A folder in which the commands of the README's own question were given."""
    folder = tmp_path_factory.mktemp("readme")
    write_design(folder / STUDY, blocks("toml", "README.md")[0])
    assert blocks("toml", "README.md")[0] == (ROOT / "designs" / "examples" / STUDY / "design.toml").read_text()
    for arguments in shown("README.md"):
        result = command(*arguments, cwd=folder)
        assert result.returncode == 0, result.stderr
    return folder


def test_list_of_designs__has_every_study_and_abstracts_leave_nothing_out_in_silence():
    """Each sentence has an answer, and claims if it is tested; every claim of such an origin stands beside one."""
    designs = ROOT.glob("designs/*/design.toml")
    stated = {path.parent.name: tomllib.loads(path.read_text())["claims"] for path in designs}
    every = {f"{study}/{name}": claim["origin"] for study, each in stated.items() for name, claim in each.items()}
    abstracts = tomllib.loads((ROOT / "designs" / "abstracts.toml").read_text())
    shown: set[str] = set()
    for sentence in (sentence for paper in abstracts["paper"] for sentence in paper["sentences"]):
        named = sentence.get("claims", [])
        tested = {name for name, origin in every.items() if origin in named} | {name for name in named if "/" in name}
        shown |= tested
        assert sentence["answer"] in ANSWERS and sentence["because"] and bool(tested) == ("test" in sentence)
    assert shown <= every.keys()
    assert {name for name, origin in every.items() if origin.startswith(("abstract", "related"))} <= shown
    listed = re.findall(r"\[`(.*?)`\]\((.*?)/README.md\)", DESIGNS)
    assert sorted({*sum(listed, ())}) == sorted(each.parent.name for each in ROOT.glob("designs/*/design.toml"))
    assert sorted(each.parent.name for each in ROOT.glob("designs/*/README.md")) == sorted(name for name, _ in listed)
    pages = [text for name, text in DOCUMENTS.items() if re.fullmatch(r"designs/.*/README.md", name)]
    assert max(len(text.split()) for text in pages) <= 400 and len(README.splitlines()) <= 120


@pytest.mark.parametrize("document, number", [
    (document, k) for document in DOCUMENTS for k, _ in enumerate(blocks("python", document))
    if document not in ("README.md", "simstudy/README.md", *(f"simstudy/docs/{each}.md" for each in ELSEWHERE))
])  # fmt: skip
def test_python_blocks__run(document, number, study, monkeypatch, capsys):
    monkeypatch.chdir(study)
    exec(blocks("python", document)[number], {})
    assert capsys.readouterr().out.strip()


def test_own_question_and_contrast__have_the_answers_of_the_pages(study):
    results = cells_of(study / "outputs" / STUDY / "quick")
    assert results.verdict.values.tolist() == ["contradicted"] and not lacking("README.md", "A third does not help")
    two, three = ({"n_heads": heads, "noise_sd": 1} for heads in (2, 3))
    found = simstudy.contrast(results, three, two, "mse")
    assert not lacking("simstudy/docs/results.md", f"{found.estimate:.4f}", f"{found.mcse:.5f}", below="## Two cells")
    errors = [f"{float(results.mse.sel(source='empirical', cell=results.cell[k])):.2f}" for k in (1, 3)]
    assert not lacking("simstudy/docs/results.md", "# {} with two heads, {} with three".format(*errors))


def test_own_model__is_inspected_as_the_readme_says(capsys, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("simstudy.transformers.inspection.QUERIES", 2)  # whose theory takes half the time of four
    exec(blocks("python", "README.md")[1].replace("(8, 40)", "(4, 40)"), {})  # half as many texts
    worth = [float(each) for each in capsys.readouterr().out.strip("[]\n").split()]
    assert len(worth) == 12 and all(1 <= each <= 8 for each in worth)


def test_own_matrices__are_answered_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(blocks("python", "simstudy/docs/your-model.md")[0], found)
    assert found["found"].pair_correlation[0] > 0.9
    result = command(*next(each for each in shown("simstudy/docs/your-model.md") if "heads.npz" in each), cwd=tmp_path)
    assert result.returncode == 0 and "alike    layer 0, heads 0 and 1: 0.9" in result.stdout, result.stderr


def test_template__is_a_valid_study_into_which_the_other_blocks_fit(tmp_path):
    whole = (ROOT / "simstudy" / "commands" / "templates" / "heads" / "design.toml").read_text()
    population = blocks("toml", OWN_DATA)[0]
    random_heads = re.sub(r"^\[simulation\].*?(?=^\[)", population, whole, flags=re.DOTALL | re.MULTILINE)
    random_heads = random_heads.replace('"orthogonal"', '"haar"')
    others = re.sub(r"^\[(data|queries|simulation)\].*?(?=^\[)", "", whole, flags=re.DOTALL | re.MULTILINE)
    path, found = tmp_path / "my-study.toml", []
    for text in (whole, random_heads, others + blocks("toml", OWN_DATA)[1]):
        path.write_text(text)
        assert set(profiles_of(path)) == {"quick", "full"}
        found.append([planned.cell for planned in load_design(path).cells])
    assert len(found[0]) == 8 and {cell.population for cell in found[1]} == {("heads", "queries")}
    assert {(cell.rows.keys.shape, cell.population) for cell in found[2]} == {((410, 10), ("held_out",))}


def test_examples_of_the_architecture__are_a_study_that_runs(tmp_path):
    page, folder = "simstudy/README.md", tmp_path / "my-system"
    path = write_design(folder, blocks("toml", page)[0])
    system, measure, kernel = blocks("python", page)
    assert max(len(each.splitlines()) for each in (system, measure, kernel)) <= 20
    (folder / "functions.py").write_text("\n".join((system, measure, kernel)))
    path.write_text(path.read_text().replace('["largest_weight"]', '["largest_weight", "effective_keys"]'))
    how = {"executor": "serial", "trust": [folder / "functions.py"]}
    results = cells_of(simstudy.run(folder, output=tmp_path, **how))
    assert (np.diff(results.effective_keys.sel(source="empirical")) > 0).all()
    path.write_text(path.read_text().replace('"attention"', '"compact"').replace(', "effective_keys"', ""))
    results = cells_of(simstudy.run(folder, output=tmp_path / "kernel", **how))
    assert (results.largest_weight.sel(source="empirical") > 1 / 64).all()


@pytest.mark.rare
def test_commands_of_long_runs__work_in_their_order(tmp_path):
    long_runs = [each for each in shown("simstudy/docs/clusters.md") if "principal-angles" not in each]
    assert [arguments[0] for arguments in long_runs] == ["init", "plan", "run", "status", "replay"]
    for arguments in long_runs:
        result = command(*arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    folder = tmp_path / "outputs" / "my-study" / "quick"
    assert (folder / "report.html").exists() and list((folder / "replays").glob("*.nc"))


@pytest.mark.rare
def test_tutorial__finds_what_it_says(tmp_path, monkeypatch):
    tutorial = DOCUMENTS["simstudy/docs/tutorial.md"]
    for arguments in (each for each in shown("simstudy/docs/tutorial.md") if each[0] != "plan"):
        assert command(*arguments, cwd=tmp_path).returncode == 0
    table = tutorial.split("<!-- run of my-question -->")[1].split("<!-- end -->")[0]
    results = cells_of(simstudy.open_results(tmp_path / "outputs" / "my-question" / "quick"))
    found = [[line.statement, line.verdict, line.estimate, line.claimed] for line in verdict_lines(results)]
    assert [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]] == found
    monkeypatch.chdir(tmp_path)
    exec(blocks("python", "simstudy/docs/tutorial.md")[0], {})
    path = tmp_path / "my-question" / "design.toml"
    assert blocks("toml", "simstudy/docs/tutorial.md")[0].strip() in path.read_text()
    changed = blocks("toml", "simstudy/docs/tutorial.md")[1].strip()
    path.write_text(re.sub("^regression = .*", changed, path.read_text(), flags=re.MULTILINE))
    assert command("run", "my-question", cwd=tmp_path).returncode == 5
    results = cells_of(simstudy.open_results(tmp_path / "outputs" / "my-question" / "quick"))
    assert set(results.verdict.values) == {"supported"}
    assert not lacking("simstudy/docs/tutorial.md", f"{-results.verdict_estimate.values[1]:.4f} ± 0.0003")


def test_bibliography__has_every_arxiv_number_once_and_the_theory_every_formula_that_docstrings_name():
    linked = re.findall(r"\[(\d{4}\.\d{5})\]", DOCUMENTS["simstudy/docs/bibliography.md"])
    files = [path for folder in ("designs", "simstudy") for path in (ROOT / folder).rglob("*.*")]
    texts = [*DOCUMENTS.values(), *(path.read_text() for path in files if path.suffix in (".py", ".toml", ".html"))]
    named = {number for text in texts for number in re.findall(r"\b[12]\d[01]\d\.\d{5}\b", text)}
    assert len(linked) == len(set(linked)) and named <= set(linked) and len(named) > 25
    labels = re.findall(r"^\$\$ \((.*?)\)$", DOCUMENTS["simstudy/theory/README.md"], flags=re.MULTILINE)
    named = {each for path in ROOT.glob("simstudy/**/*.py") for each in re.findall(":eq:`(.*?)`", path.read_text())}
    assert len(labels) == len(set(labels)) and named <= set(labels) and len(named) > 20


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_commands__exist(document):
    """Files and headings that a document names, every `simstudy` command with its options, and every make target."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", DOCUMENTS[document]):
        path, _, anchor = target.partition("#")
        place = (ROOT / document).parent / path if path else ROOT / document
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}, target
    for name, *arguments in shown(document):
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {each.split("=")[0] for each in arguments if each.startswith("--")} <= options, (name, arguments)
    for target in set(re.findall(r"(?:`|^    )make ([a-z]+)", DOCUMENTS[document], flags=re.MULTILINE)):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), target


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstring__says_what_goes_in_and_what_comes_out(name):
    found = validate(name)
    faults = [message for code, message in found["errors"] if code in REQUIRED]
    thing = pydoc.locate(name)
    if fields := getattr(thing, "_fields", ()):
        entries = NumpyDocString(inspect.getdoc(thing))["Attributes"]
        assert {each for entry in entries for each in entry.name.split(", ")} == {*fields}
    else:
        assert not faults
    if name.partition(".")[2] in simstudy.__all__ and not inspect.isclass(thing):
        assert "Raises\n---" in found["docstring"]


def test_reference__has_every_public_function_all_that_describe_prints_and_all_files_of_a_study(study):
    names = [f"`{path.name}" for path in (study / "outputs" / STUDY / "quick").iterdir() if path.name != ".partial"]
    assert len(names) > 8
    assert not lacking("simstudy/docs/clusters.md", *lacking("simstudy/docs/results.md", *names))
    functions = (ROOT / "simstudy" / "docs" / "functions.rst").read_text()
    listed = re.findall(r"auto(?:function|class):: simstudy\.(\w+)$", functions, flags=re.M)
    assert sorted(listed) == sorted([*simstudy.__all__])
    assert SETTINGS.read_text() == settings_page(), "python tests/pages.py writes it anew"
