"""The command line, a thin layer over the Python functions; these are imported inside, so that ``--help`` is fast."""

from __future__ import annotations

import importlib.resources
import inspect as code
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import simstudy
from simstudy.errors import STEERING, UserError, require_extra

if TYPE_CHECKING:
    import xarray as xr
    from rich.table import Table

    from simstudy.design.document import Design
    from simstudy.execution.store import Store

OUTPUT = Path("outputs")
EXIT_PRECISION_MISSED = 3
EXIT_NOT_AS_EXPECTED = 5
MAX_BYTES = 1 << 32
"""Largest file that is read."""
_CSV = "give CSV in UTF-8 with a header, commas between columns and points before decimals"

app = typer.Typer(
    # Help in Rich takes a third of a second to import.
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
    help="Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.\n\n"
    "A study is a folder with a design (TOML), which states data, heads and claims. A run judges the claims. First run "
    "`simstudy init my-study`, `simstudy check my-study`, `simstudy run my-study`; then open "
    "outputs/my-study/quick/report.html. `simstudy list` shows the shipped designs.",
    epilog="Exit codes: 0 done; 2 a mistake (the message states a remedy); 3 done, but some cells stopped "
    "before their precision; 5 done, but some verdict is not the expected one; "
    "70 a defect of simstudy; 130 interrupted.",
)


def say(*lines: str | Table) -> None:
    """Print lines and tables."""
    from simstudy.report import terminal

    terminal.say(*lines)


def say_json(content: Any) -> None:
    """Print plain data as JSON."""
    say(*json.dumps(content, indent=2, allow_nan=False).split("\n"))


def _show_version(requested: bool) -> None:
    if requested:
        say(f"simstudy {simstudy.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Handle options before a command; without a command, show the help."""
    if context.invoked_subcommand is None:
        say(*context.get_help().splitlines())
        raise typer.Exit(2)


def plain_path(option: typer.CallbackParam, path: Path) -> Path:
    """Return a path; UserError if it has control characters, which job scripts and terminals would interpret."""
    if found := STEERING.search(str(path)):
        fault = f"must be one line of text without control characters; U+{ord(found[0]):04X} is one"
        raise UserError(f"{option.name} = {str(path)!r}: {fault}")
    return path


DesignArgument = Annotated[str, typer.Argument(help="Path of a study, or the name of a shipped one.")]
ProfileOption = Annotated[str, typer.Option(help="Profile of the design: quick, full, or one of your own.")]
ExecutorOption = Annotated[str, typer.Option(help="serial, threads, processes, cuda, or tls://host:8786 (Dask).")]
OutputOption = Annotated[Path, typer.Option(help="Folder of all studies: OUTPUT/STUDY/PROFILE.", callback=plain_path)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; the documentation lists its keys.")]
TrustOption = Annotated[
    list[Path] | None,
    typer.Option("--trust", help="Python file of the design whose code may run; can be repeated."),
]
ConfirmOption = Annotated[
    str | None,
    typer.Option("--confirm", help="Confirm with other random numbers, derived from design, functions and this text."),
]
ClaimsOption = Annotated[bool, typer.Option("--claims", help="Also show the table of claims.")]


def load_with_store(
    design: str | Path, profile: str, output: Path, trust: list[Path] | None = None, confirm: str | None = None
) -> tuple[Design, Store]:
    """Return a design and its store."""
    from simstudy.design.load import load_design
    from simstudy.execution.store import store_of

    loaded = load_design(design, profile, trust or (), confirm)
    return loaded, store_of(loaded, output)


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="Table (heads), setting (noise), kind (ridge), or measure (mse).")] = "",
) -> None:
    """Print all tables, entries and kinds of a design with defaults, and all measures; or only those of a name."""
    from simstudy.reference import described

    say(*described(name))


@app.command("list")
def list_designs(
    folder: Annotated[Path | None, typer.Argument(help="List the designs in this folder instead.")] = None,
) -> None:
    """List shipped designs and those in ./designs."""
    from rich.table import Table

    from simstudy.design.load import FILE, designs_in, known_designs, read_design

    if not (paths := known_designs() if folder is None else designs_in(folder)):
        raise UserError(f"{folder or 'designs'}: holds no study folders (NAME/{FILE}); give another folder")
    table = Table("design", "title", "profiles")
    for path in paths:
        try:
            tables = read_design(path).tables
            table.add_row(path.parent.name, str(tables["study"]["title"]), ", ".join(tables["profiles"]))
        except (UserError, LookupError, TypeError):
            table.add_row(path.parent.name, "has mistakes", f"see simstudy check {path.parent}")
    say(table)


@app.command()
def check(design: DesignArgument, trust: TrustOption = None) -> None:
    """Check a design under every profile and list all mistakes, each with its place and remedy."""
    from simstudy.design.load import check as check_design
    from simstudy.report.terminal import counted

    for each in check_design(design, trust or ()).values():
        size = f"{counted(len(each.cells), 'cell')}, {counted(len(each.claims), 'claim')}"
        say(f"{each.path}: {each.profile}: {size}")


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the study and of its folder.")] = "my-study",
    functions: Annotated[bool, typer.Option("--functions", help="A study of your own functions.")] = False,
) -> None:
    """Write the folder NAME of an example study with comments, which runs in seconds, as a start for your own."""
    from simstudy.design.document import NAME

    if not re.fullmatch(NAME, name):
        raise UserError(f"{name}: not a valid study name; use lower-case letters and digits, joined by single hyphens")
    templates = importlib.resources.files("simstudy.commands") / "templates" / ("functions" if functions else "heads")
    folder = Path(name)
    try:
        folder.mkdir()
        for template in templates.iterdir():
            text = template.read_text(encoding="utf-8").replace("my-study", name)
            (folder / template.name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); give another name or go elsewhere") from None
    trust = f" --trust {folder / 'functions.py'}" if functions else ""
    say(f"study    {folder}", f"now      simstudy check {folder}{trust}", f"         simstudy run {folder}{trust}")


@app.command()
def run(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    executor: ExecutorOption = "threads",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads, processes or GPUs; by default all.")] = None,
    output: OutputOption = OUTPUT,
    share: Annotated[str | None, typer.Option(help='Compute a share of cells, such as "3/8", for later runs.')] = None,
    trust: TrustOption = None,
    confirm: ConfirmOption = None,
    claims: ClaimsOption = False,
) -> None:
    """Run a study, or continue it: stored batches are not computed again."""
    # xarray imports Dask at its first use, if it is installed; without Dask a short run takes a tenth less.
    if not {"dask", "xarray"} & {*sys.modules}:
        sys.modules["dask"] = None  # type: ignore[assignment]
        importlib.import_module("xarray").Variable((), 0.0)
        del sys.modules["dask"]
    from simstudy.report.progress import ProgressDisplay
    from simstudy.study import run_share

    loaded, store = load_with_store(design, profile, output, trust, confirm)
    how: dict[str, Any] = {"output": output, "executor": executor, "workers": workers}
    if share is None:
        raise typer.Exit(run_and_report(loaded, store, claims, **how))
    with ProgressDisplay() as display:
        n_cells, stored = run_share(loaded, share, observer=display, **how)
    say(f"share {share}: {n_cells} of {len(loaded.cells)} cells done", f"stored   {stored}")


def run_and_report(loaded: Design, store: Store, claims: bool = False, **how: Any) -> int:
    """Run a study as `simstudy.run` does, print the findings in five lines, and return the exit code."""
    from simstudy.report import tables
    from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line
    from simstudy.report.terminal import counted, warn
    from simstudy.results import cells_of
    from simstudy.study import complete

    with ProgressDisplay() as display:
        written, status, notes = complete(loaded, observer=display, **how)
    results = cells_of(written)
    replicates, failed = int(results.n_replicates.values.sum()), int(results.n_failed.values.sum())
    size = f"{counted(results.sizes['cell'], 'cell')}, {replicates:,} replicates, {failed} failed"
    lines = _print_answer(results, loaded, claims)
    say(f"{tables.count_verdicts(lines)}; {size}" if lines else size)
    if loaded.confirmation:
        say(f"confirmed with the text {loaded.confirmation.text!r}: {loaded.confirmation.digest}")
    if warnings := [*filter(None, (missed_line(status, loaded), undecided_line(results, loaded), *notes))]:
        warn(*warnings)
    if store.read_json(tables.MADE_OF) != tables.made_of(status, store):
        # The page is imported and drawn last, after verdicts are printed.
        from simstudy.report.page import write_report

        with store.locked():
            write_report(results, loaded, store)
            store.write_json(tables.MADE_OF, tables.made_of(status, store))
    say(f"page: {store.folder / 'report.html'}")
    if not all(line.as_expected for line in lines):
        return EXIT_NOT_AS_EXPECTED
    return 0 if all(cell.reached for cell in status.cells) else EXIT_PRECISION_MISSED


def _print_answer(results: xr.Dataset, loaded: Design, claims: bool) -> list[Any]:
    from simstudy.report import tables

    lines = tables.verdict_lines(results)
    if claims and lines:
        say(tables.verdict_table(lines))
    say(tables.sentence(lines) or tables.measure_words(results, loaded))
    return lines


@app.command()
def submit(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    output: OutputOption = OUTPUT,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs to keep running.")] = 2,
    show: Annotated[bool, typer.Option("--show", help="Print the job script and submit nothing.")] = False,
    trust: TrustOption = None,
    confirm: ConfirmOption = None,
) -> None:
    """Run a study on a Slurm cluster by jobs that this command starts and supervises.

    It replaces lost jobs. Ctrl-C ends all jobs, and the same command continues the study. The configuration of
    dask-jobqueue describes a job: cores, memory, walltime, queue, interface, local-directory,
    job-extra-directives, job-script-prologue.
    """
    require_extra("submit", "dask_jobqueue", "cluster", ", or run --share in jobs of your own")
    from simstudy.execution.clusters import job_script
    from simstudy.execution.executors import Jobs

    loaded, store = load_with_store(design, profile, output, trust, confirm)
    slurm_jobs = Jobs(jobs, store.folder.absolute())
    store.files.require_own_files()  # before Dask makes the folder of logs
    if show:
        say(*job_script(slurm_jobs).split("\n"))
    else:
        raise typer.Exit(run_and_report(loaded, store, output=output, executor=slurm_jobs))


@app.command()
def status(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    output: OutputOption = OUTPUT,
    as_json: JsonOption = False,
    trust: TrustOption = None,
    confirm: ConfirmOption = None,
) -> None:
    """Show the progress of each cell of a study, also while another process runs it.

    The command writes nothing. Standard errors are those of the last computation; before the first, only batches
    are counted. The numbers of cells are those of `simstudy replay --cell`.
    """
    from simstudy.execution.provenance import counted, read_status
    from simstudy.report.progress import status_line, status_record, status_table

    loaded, store = load_with_store(design, profile, output, trust, confirm)
    found = read_status(loaded, store) or counted(loaded, store)
    if as_json:
        say_json(status_record(found, loaded, store))
    else:
        say(status_table(found, loaded), status_line(found, store))


@app.command()
def plan(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    workers: Annotated[int | None, typer.Option(min=1, help="Also predict the time with this many workers.")] = None,
    output: OutputOption = OUTPUT,
    trust: TrustOption = None,
) -> None:
    """Predict time, memory and disk of a study from a few batches of each cell, which `run` does not repeat."""
    from simstudy.report.progress import plan_table
    from simstudy.study import plan as plan_study

    loaded, _ = load_with_store(design, profile, output, trust)
    say(*plan_table(plan_study(loaded, output=output), workers))


@app.command()
def report(
    design: Annotated[
        str | None, typer.Argument(help="Design, by path or name, or a folder of designs; by default all studies.")
    ] = None,
    profile: ProfileOption = "quick",
    output: OutputOption = OUTPUT,
    trust: TrustOption = None,
    confirm: ConfirmOption = None,
    claims: ClaimsOption = False,
) -> None:
    """Write the report of a study again, or one page of all studies in a folder.

    The command uses stored batches and computes no replicate.
    """
    from simstudy.design.load import designs_in, known_designs
    from simstudy.report.page import gather, write_report
    from simstudy.report.tables import count_verdicts
    from simstudy.results import cells_of, read_results

    if design is None or designs_in(Path(design)):
        # By default shipped studies, and those in ./designs and in the current folder.
        known = designs_in(Path(design)) if design else list(dict.fromkeys([*known_designs(), *designs_in(Path())]))
        say(f"page: {gather(known, profile, output, trust or ())}")
        return
    loaded, store = load_with_store(design, profile, output, trust, confirm)
    results = cells_of(read_results(store))
    # The page is written first, as that refuses results of another design.
    with store.locked():
        path = write_report(results, loaded, store)
    say(count_verdicts(_print_answer(results, loaded, claims)), f"page: {path}")


@app.command()
def replay(
    design: DesignArgument,
    cell: Annotated[int, typer.Option(min=0, help="Number of the cell, as simstudy status shows it.")],
    replicate: Annotated[int, typer.Option(min=0, max=2**56 - 1, help="Number of the replicate, counted from 0.")],
    profile: ProfileOption = "quick",
    output: OutputOption = OUTPUT,
    trust: TrustOption = None,
    confirm: ConfirmOption = None,
) -> None:
    """Compute one replicate again, bit for bit, and store its data and estimates."""
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.study import require_trust, rules_of, sized

    loaded, store = load_with_store(design, profile, output, trust, confirm)
    if cell >= len(loaded.cells):
        raise UserError(f"--cell {cell}: must be a number below {len(loaded.cells)}")
    require_trust([loaded.cells[cell].cell])
    arrays = rebuild(sized(loaded, rules_of(loaded).get("control")).cells[cell].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{cell}-replicate-{replicate}.nc", arrays)
    say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    say(f"replicate {replicate} of cell {cell}: {arrays.attrs['failure'] or 'defined'}", f"arrays   {path}")


@app.command()
def judge(
    numbers: Annotated[Path, typer.Argument(help="Table with a header (CSV).")],
    claims: Annotated[Path | None, typer.Argument(help="TOML with claims; by default all pairs are compared.")] = None,
    unit: Annotated[str | None, typer.Option(help="Column that names units, such as tasks; default: each row.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of numbers, if a row is one unit and condition.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column that names groups of dependent units.")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave out units that lack a number.")] = False,
    looks: Annotated[str | None, typer.Option(help="`one` if the number of units was fixed; by default `any`.")] = None,
    page: Annotated[Path | None, typer.Option(help="Also write a page (HTML) here.", callback=plain_path)] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge claims about your own numbers: one for each unit and condition, compared within units.

    The probability of any wrong verdict is at most 5 %; without `--looks one` also if you add units and judge again.
    """
    from simstudy.design.settings.records import DesignError
    from simstudy.judging.judged import judged, read_claims, write_page
    from simstudy.report.tables import verdict_table
    from simstudy.ties import tied_sets

    if page is not None and (page.suffix not in (".html", ".htm") or claims is None):
        raise UserError(f"--page {page}: needs claims, and must end in .html or .htm, to replace no table")
    options = {"unit": unit, "value": value, "cluster": cluster, "missing": "drop" if drop else None, "looks": looks}
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    place, stated = ("", None) if claims is None else read_claims(claims)
    try:
        if stated is None:
            ties = tied_sets(_read(numbers, dict.fromkeys(options) | given), **given)
            rows = ties.conditions.astype(object).mask(ties.conditions.isna(), None).to_dict("records")
            return say_json(rows) if as_json else say(*repr(ties).split("\n"))
        found = judged(_read(numbers, stated.numbers.model_dump() | given), place, stated, given)
    except DesignError:  # a mistake in the claims
        raise
    except UserError as error:
        raise UserError(f"{numbers}: {str(error).removeprefix('numbers: ')}") from None
    if as_json:
        table = found.to_dataframe().reset_index().astype(object)
        rows = table.mask(table.isin([float("nan"), float("inf"), float("-inf")]), None).to_dict("records")
        say_json({"units": found.n_units, "units_left_out": found.n_dropped, "claims": rows})
    else:
        say(verdict_table(found.lines, "standard error", found.looks), *found.summary, *found.wanted)
    if page is not None and claims is not None:
        written = write_page(found, page, (numbers, claims))
        if not as_json:
            say(f"page     {written}")
    raise typer.Exit(0 if all(line.as_expected for line in found.lines) else EXIT_NOT_AS_EXPECTED)


def _read(path: Path, columns: dict[str, Any]) -> Any:
    """Return a table with these columns; labels that look like numbers stay text if their spelling matters."""
    import pandas as pd

    from simstudy.design.files import open_regular

    with open_regular(path, MAX_BYTES) as file:
        try:
            # Two rows, as pandas takes the first column for names of rows if the first row is longer than the header.
            names = pd.read_csv(file, header=None, nrows=2, dtype=str).iloc[0]
            file.seek(0)
            table = pd.read_csv(file)
        except (OSError, ValueError) as error:
            raise UserError(f"{' '.join(str(error).split())}; {_CSV}") from None
        if names.duplicated().any():  # pandas would rename them
            raise UserError(f"two columns {names[names.duplicated()].iloc[0]!r}; give each its own name")
        if len(table.columns) == 1 and re.search("[;\t]", name := str(table.columns[0])):
            raise UserError(f"one column, {name!r}; {_CSV}")
        value, units = columns["value"], [name for name in table if name in (columns["unit"], columns["cluster"])]
        labels = [name for name in table if name != value] if value else units
        file.seek(0)
        for name, written in pd.read_csv(file, dtype=str, usecols=labels).items():
            if table[name].dtype.kind in "iuf" and _is_text(written):
                table[name] = written
    conditions = pd.Series([name for name in table if name not in units])
    numbers = pd.to_numeric(conditions, errors="coerce")
    if not value and not numbers.isna().any() and not _is_text(conditions):
        table = table.rename(columns=dict(zip(conditions, numbers.tolist(), strict=True)))
    return table


def _is_text(written: Any) -> bool:
    """Return true if equal numbers are spelled differently, such as 1.10 and 1.1, or begin with zeros."""
    spelled = {each.strip() for each in written.dropna()}
    return len({float(each) for each in spelled}) < len(spelled) or any(re.match(r"[+-]?0\d", each) for each in spelled)


@app.command()
def inspect(
    model: Annotated[
        Path, typer.Argument(help="Folder of a model, or .npz of W_Q, W_K, states or weights.", callback=plain_path)
    ],
    output: Annotated[Path, typer.Option(help="Folder for heads.nc and heads.html.", callback=plain_path)],
    texts: Annotated[Path | None, typer.Option(help="File of texts in UTF-8, one per line, at least four.")] = None,
    remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code of the folder.")] = False,
) -> None:
    """Measure how correlated the heads of a trained transformer are, and compare this with theory.

    Attention is captured where the model computes it. Arrays: W_Q and W_K (layer, head, feature, dimension) with states
    (layer, text, token, feature), or weights (layer, text, head, query, key).
    """
    from simstudy.design.files import open_regular, read_arrays, read_text
    from simstudy.execution.store import Store
    from simstudy.report.heads import CAUTION, SOURCE_NAMES, answer, most_correlated, reasons, scores, write_heads_page
    from simstudy.transformers.inspection import inspect_heads

    if model.suffix == ".npz":
        if texts is not None:
            raise UserError(f"--texts {texts}: arrays are of texts already; leave it out, or give a model's folder")
        try:
            with open_regular(model, MAX_BYTES) as file:
                arrays = read_arrays(file)
            states = arrays.pop("states", None)
            flags = {k: arrays[k].item() for k in ("scale", "causal") if k in arrays and not arrays[k].ndim}
            found = inspect_heads(arrays | flags, states)
        except (UserError, ValueError) as error:
            raise UserError(f"{model}: {error}") from None
    else:
        if not os.path.isfile(model / "config.json"):
            raise UserError(f"{model}: neither .npz nor a folder with config.json; write one by model.save_pretrained")
        if texts is None:
            raise UserError("--texts: give a file with one text a line")
        try:
            lines = [line for line in read_text(texts, MAX_BYTES).splitlines() if line.strip()]
        except UserError as error:
            raise UserError(f"{texts}: {error}") from None
        require_extra("a model", "transformers", "models")
        from transformers import AutoModel, AutoTokenizer

        how = {"local_files_only": True, "trust_remote_code": remote_code}  # nothing is downloaded
        try:
            tokenizer = AutoTokenizer.from_pretrained(model, **how)
            loaded = AutoModel.from_pretrained(model, **how).eval()
        except (OSError, ValueError, ImportError) as error:
            raise UserError(f"{model}: {' '.join(str(error).split())}") from None
        given = [tokenizer(line, return_tensors="pt", truncation=True) for line in lines]
        if (different := len({tuple(each["input_ids"][0].tolist()) for each in given})) < 4:
            raise UserError(f"{texts}: {different} of {len(lines)} texts differ in their tokens; give 4 that differ")
        found = inspect_heads(loaded, given)
    path = write_heads_page(found, Store(output), model.stem)
    say(answer(found))
    for layer, first, second, correlation in most_correlated(found, 5):
        say(f"alike    layer {layer}, heads {first} and {second}: {correlation}")
    say(CAUTION)
    for source, name in SOURCE_NAMES.items():
        say("{}: rank correlation {}, root mean squared error {}".format(name, *scores(found, source)))
    for reason in reasons(found):
        say(f"no theory: {reason}")
    say(f"data     {output / 'heads.nc'}", f"page     {path}")


for command in app.registered_commands:  # listed by the first line of their help
    command.short_help = str(code.getdoc(command.callback)).partition("\n")[0]
