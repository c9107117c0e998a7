"""A user's own numbers and models: ``judge`` numbers, ``inspect`` heads of trained transformers."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from simstudy.commands import cli
from simstudy.errors import UserError, require_extra, require_plain

MAX_BYTES = 1 << 32
"""Largest file that is read."""
_CSV = "give CSV in UTF-8 with a header, commas between columns and points before decimals"


@cli.app.command()
def judge(
    numbers: Annotated[Path, typer.Argument(help="Table with a header (CSV).")],
    claims: Annotated[Path | None, typer.Argument(help="TOML with claims; without, all pairs are compared.")] = None,
    unit: Annotated[str | None, typer.Option(help="Column that names units, such as tasks; else each row.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of numbers, if a row is one unit and condition.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column that names groups of dependent units.")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave out units that lack a number.")] = False,
    looks: Annotated[str | None, typer.Option(help="`one` if the number of units was fixed; else `any`.")] = None,
    page: Annotated[Path | None, typer.Option(help="Also write a page (HTML) to this file.")] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Judge claims about a table of your own numbers: one for each unit and condition, compared within units.

    The chance of any wrong verdict is at most 5 %, even if you add units and judge again, unless with `--looks one`.
    """
    from simstudy.design.settings.records import DesignError
    from simstudy.judging.judged import judged, read_claims, write_page
    from simstudy.report.tables import verdict_table
    from simstudy.ties import tied_sets

    if page is not None and (page.suffix not in (".html", ".htm") or claims is None):
        raise UserError(f"--page {page}: needs claims, and must end in .html or .htm, so that it replaces no table")
    options = {"unit": unit, "value": value, "cluster": cluster, "missing": "drop" if drop else None, "looks": looks}
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    place, stated = ("", None) if claims is None else read_claims(claims)
    try:
        if stated is None:
            ties = tied_sets(_read(numbers, dict.fromkeys(options) | given), **given)
            rows = ties.conditions.to_dict("records")
            return cli.say_json(rows) if as_json else cli.say(*repr(ties).split("\n"))
        found = judged(_read(numbers, stated.numbers.model_dump() | given), place, stated, given)
    except DesignError:  # of the claims
        raise
    except UserError as error:
        raise UserError(f"{numbers}: {str(error).removeprefix('numbers: ')}") from None
    if as_json:
        table = found.to_dataframe().reset_index().astype(object)
        rows = table.mask(table.isin([math.nan, math.inf, -math.inf]), None).to_dict("records")
        cli.say_json({"units": found.n_units, "units_left_out": found.n_dropped, "claims": rows})
    else:
        cli.say(verdict_table(found.lines, "standard error", found.looks), *found.summary, *found.wanted)
    if page is not None and claims is not None:
        written = write_page(found, cli.plain_path(page), (numbers, claims))
        if not as_json:
            cli.say(f"page     {written}")
    raise typer.Exit(0 if all(line.as_expected for line in found.lines) else cli.EXIT_NOT_AS_EXPECTED)


def _read(path: Path, columns: dict[str, Any]) -> Any:
    """Return a table with the columns stated; what no column of numbers holds is text unless it can but be a number."""
    import pandas as pd

    from simstudy.design.files import open_regular

    with open_regular(path, MAX_BYTES) as file:
        try:
            names = pd.read_csv(file, header=None, nrows=1, dtype=str).iloc[0]
            file.seek(0)
            table = pd.read_csv(file)
        except (OSError, ValueError) as error:
            raise UserError(f"{' '.join(str(error).split())}; {_CSV}") from None
        if names.duplicated().any():  # pandas would number them
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
        levels = dict(zip(conditions, numbers.tolist(), strict=True))
        table = table.set_axis([levels.get(name, name) for name in table], axis=1)
    return table


def _is_text(written: Any) -> bool:
    """Return true if numbers as written differ where values do not, such as 1.10 and 1.1, or begin with zeros."""
    spelled = {each.strip() for each in written.dropna()}
    return len({float(each) for each in spelled}) < len(spelled) or any(re.match(r"[+-]?0\d", each) for each in spelled)


@cli.app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or .npz of W_Q, W_K, states or weights.")],
    output: Annotated[Path, typer.Option(help="Folder for heads.nc and heads.html.", callback=cli.plain_path)],
    texts: Annotated[Path | None, typer.Option(help="Texts in UTF-8, one a line; at least four.")] = None,
    remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code of the folder.")] = False,
) -> None:
    """Measure how correlated the heads of a trained transformer are, and compare this with theory.

    Attention is captured where the model computes it. Arrays: W_Q and W_K (layer, head, feature, dimension) with states
    (layer, text, token, feature), or weights (layer, text, head, query, key).
    """
    from simstudy.design.files import open_regular, read_arrays
    from simstudy.execution.store import Store
    from simstudy.report.heads import CAUTION, SOURCE_NAMES, answer, most_alike, reasons, scores, write_heads_page
    from simstudy.transformers.inspection import inspect_heads

    require_plain("model", str(model))
    if model.suffix == ".npz":
        try:
            with open_regular(model, MAX_BYTES) as file:
                arrays = read_arrays(file)
            states = arrays.pop("states", None)
            flags = {k: arrays[k].item() for k in ("scale", "causal") if k in arrays and not arrays[k].ndim}
            found = inspect_heads(arrays | flags, states)
        except (UserError, ValueError) as error:
            raise UserError(f"{model}: {error}") from None
    else:
        found = inspect_heads(*_model(model, texts, remote_code))
    path = write_heads_page(found, Store(output), model.stem)
    cli.say(answer(found))
    for layer, first, second, correlation in most_alike(found, 5):
        cli.say(f"alike    layer {layer}, heads {first} and {second}: {correlation}")
    cli.say(CAUTION)
    for source, name in SOURCE_NAMES.items():
        cli.say("{}: rank correlation {}, root mean squared error {}".format(name, *scores(found, source)))
    for reason in reasons(found):
        cli.say(f"no theory: {reason}")
    cli.say(f"data     {output / 'heads.nc'}", f"page     {path}")


def _model(folder: Path, texts: Path | None, remote_code: bool) -> tuple[Any, Any]:
    """A model of a folder, and what it takes of each text; nothing is loaded from elsewhere."""
    from simstudy.design.files import read_text

    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: neither .npz nor a folder with config.json; save a model by model.save_pretrained")
    if texts is None:
        raise UserError("--texts: give a file with one text a line")
    try:
        lines = [line for line in read_text(texts, MAX_BYTES).splitlines() if line.strip()]
    except UserError as error:
        raise UserError(f"{texts}: {error}") from None
    require_extra("a model", "transformers", "models")
    from transformers import AutoModel, AutoTokenizer

    how = {"local_files_only": True, "trust_remote_code": remote_code}
    try:
        tokenizer, model = AutoTokenizer.from_pretrained(folder, **how), AutoModel.from_pretrained(folder, **how).eval()
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"{folder}: {' '.join(str(error).split())}") from None
    given = [tokenizer(line, return_tensors="pt", truncation=True) for line in lines]
    if (different := len({tuple(each["input_ids"][0].tolist()) for each in given})) < 4:
        raise UserError(f"{texts}: {different} texts differ in their tokens; give 4, as the tokenizer takes them")
    return model, given
