"""Heads beyond designs: ``inspect`` those of trained transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simstudy.commands.app import app, plain_path
from simstudy.errors import UserError, require_plain

_LISTED = 5


@app.command()
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
    output: Annotated[Path, typer.Option(help="Folder for heads.nc and heads.html.", callback=plain_path)],
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
