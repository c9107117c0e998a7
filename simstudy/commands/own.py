"""What one has of one's own, beside designs: ``judge`` numbers, ``inspect`` heads of trained transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simstudy.commands import cli
from simstudy.errors import UserError, require_extra, require_plain

PAGES = (".html", ".htm")
"""Endings of the name of a page."""
_LISTED = 5
_CSV = "give CSV in UTF-8 with a header, commas between columns and points before decimals"

if TYPE_CHECKING:
    import pandas as pd


@cli.app.command()
def judge(
    numbers: Annotated[Path, typer.Argument(help="Table with a header: CSV, or Parquet with the extra `parquet`.")],
    claims: Annotated[Path, typer.Argument(help="TOML with claims as in designs, without grid and measure.")],
    unit: Annotated[str | None, typer.Option(help="Column that names units, such as tasks; else each row.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of numbers, if a row is one unit and condition.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column that names groups of dependent units.")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave out units that lack a number.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write a page (HTML) to this file.")] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Judge claims about a table of your own numbers: one for each unit and condition, compared within units.

    The chance of any wrong verdict is at most 5 %, even if you add units and judge again.
    """
    from simstudy.design.mistakes import DesignError
    from simstudy.judging.claims import read_claims
    from simstudy.judging.files import record, write_page
    from simstudy.judging.judged import judged
    from simstudy.report.tables import verdict_table
    from simstudy.report.terminal import say, say_json, show_table

    if page is not None and page.suffix not in PAGES:
        raise UserError(f"--page {page}: must end in {' or '.join(PAGES)}, so that it replaces no table and no claims")
    stated = read_claims(claims)
    options = {"unit": unit, "value": value, "cluster": cluster, "missing": "drop" if drop else None}
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    try:
        found = judged(_read(numbers, stated.columns.model_dump() | given), stated, given)
    except DesignError:  # of the claims
        raise
    except UserError as error:
        raise UserError(f"{numbers}: {str(error).removeprefix('numbers: ')}") from None
    if as_json:
        say_json(record(found))
    else:
        show_table(verdict_table(found.lines, "standard error"))
        say(*found.summary, *found.wanted)
    if page is not None:
        written = write_page(found, cli.plain_path(page), (numbers, claims))
        if not as_json:
            say(f"page     {written}")
    raise typer.Exit(0 if all(line.as_declared for line in found.lines) else cli.EXIT_UNLIKE_DECLARED)


def _read(path: Path, columns: dict[str, Any]) -> pd.DataFrame:
    """Return a table with the columns stated; what no column of numbers holds is text unless it can but be a number."""
    import pandas as pd

    from simstudy.design.files import open_regular
    from simstudy.judging.files import MAX_BYTES

    if path.suffix == ".parquet":
        require_extra("Parquet", "pyarrow", "parquet", ", or give CSV")
    with open_regular(path, MAX_BYTES) as file:
        try:
            if path.suffix == ".parquet":
                return pd.read_parquet(file)
            names = pd.read_csv(file, header=None, nrows=1, dtype=str).iloc[0]
            file.seek(0)
            table = pd.read_csv(file)
        except (OSError, ValueError) as error:
            remedy = "give a Parquet file or CSV" if path.suffix == ".parquet" else _CSV
            raise UserError(f"{' '.join(str(error).split())}; {remedy}") from None
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


def _is_text(written: pd.Series) -> bool:
    """Whether numbers, as written, tell more apart than their values, as 1.10 and 1.1, or begin with zeros."""
    spelled = {each.strip() for each in written.dropna()}
    return len({float(each) for each in spelled}) < len(spelled) or any(re.match(r"[+-]?0\d", each) for each in spelled)


@cli.app.command()
def inspect(
    weights: Annotated[
        Path, typer.Argument(help="Weights of a model (safetensors, PyTorch, GGUF, ONNX, .npz), or .npz of W_Q, W_K.")
    ],
    states: Annotated[
        Path,
        typer.Option(
            help='Array "states" (layer, sequence, token, feature) as .npy. As .npz also "mask" (sequence, token) of '
            'padded sequences and "attention" (layer, sequence, head, token, token) of the model, which is compared.'
        ),
    ],
    output: Annotated[Path, typer.Option(help="Folder for heads.nc and heads.html.", callback=cli.plain_path)],
    config: Annotated[
        Path | None, typer.Option(help="config.json of the model; W_Q and W_K (head, feature, dimension) need none.")
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Tokens of each sequence at which theory is evaluated.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of these tokens and of all random draws.")] = 0,
) -> None:
    """Measure how correlated the heads of a trained transformer are, and compare this with theory.

    States are the vectors that enter the attention of each layer, after the norm if there is one. Theory is fitted to
    every second sequence and compared with the others.
    """
    from simstudy.execution.folder import require_writable
    from simstudy.execution.store import Store
    from simstudy.report.heads import CAUTION, answer, compared, most_alike, scores, write_heads_page
    from simstudy.report.terminal import say
    from simstudy.transformers.checkpoints import read_weights
    from simstudy.transformers.heads import read_heads
    from simstudy.transformers.inspection import inspect_heads

    require_plain("weights", str(weights))
    require_writable(output)
    given = read_weights(states, alone="states")
    if not {"states"} <= given.keys() <= {"states", "mask", "attention"}:
        raise UserError(
            f'{states}: holds {", ".join(given) or "nothing"}; give "states", if needed "mask", "attention"'
        )
    heads = read_heads(weights, config)
    try:
        found = inspect_heads(
            heads, given["states"], given.get("mask"), attention=given.get("attention"), queries=queries, seed=seed
        )
    except ValueError as error:
        raise UserError(f"{states}: {error}") from None
    path = write_heads_page(found, Store(output), weights.stem)
    say(answer(found))
    for layer, first, second, correlation in most_alike(found, _LISTED):
        say(f"alike    layer {layer}, heads {first} and {second}: {correlation}")
    say(CAUTION)
    for source in ("constant", "half", "angles", "exact", "redrawn"):
        pairs, rank, gap = scores(found, source)
        say(f"{source:8} {pairs} pairs of heads, Spearman {rank}, RMSE {gap}")
    for said in filter(None, (compared(found, source) for source in ("angles", "exact"))):
        say(said)
    say(f"data     {output / 'heads.nc'}", f"page     {path}")
