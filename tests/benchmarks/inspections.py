"""Heads of a model of the size of GPT-2 small beside the model's own eager forward: processor time, and memory."""

import importlib.util
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from commands import most_memory
from limits import Row, interleaved, ratio

from simstudy import inspect_heads

SIZES = {(12, 8, 512): 2, (2, 4, 4096): 1}
"""Layers of 12 heads, texts, tokens of a text; and rounds, of which each takes some 20 s."""


def model_and_texts(n_layers: int, n_texts: int, n_tokens: int) -> tuple[Any, Any]:
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=n_layers, n_positions=n_tokens, attn_implementation="eager")
    return transformers.GPT2Model(config).eval(), torch.randint(config.vocab_size, (n_texts, n_tokens))


def run(who: str, model: Any, texts: Any) -> None:
    """One text at a time in both cases, and theory with its default."""
    import torch

    if who == "simstudy":
        inspect_heads(model, {"input_ids": texts})
    else:
        with torch.no_grad():
            for text in texts.split(1):
                model(text)


def megabytes(who: str, size: Sequence[int]) -> float:
    """Most memory above the model that a job takes, of a process of its own."""
    model, texts = model_and_texts(*size)
    return most_memory(lambda: run(who, model, texts[:, :64]), lambda: run(who, model, texts)) / 1_024_000


def inspection_rows() -> Iterator[Row]:
    """Time of the forward over that of `inspect_heads`, and the memory of each."""
    for size, rounds in SIZES.items() if importlib.util.find_spec("transformers") else ():
        given, label = model_and_texts(*size), "{} layers, {} texts of {} tokens".format(*size)
        who = ("eager forward", "simstudy")
        eager, ours = interleaved([lambda each=each, given=given: run(each, *given) for each in who], rounds)
        yield Row("heads", label, who[0], ratio(eager, ours), "times simstudy")
        for each in who if Path("/proc/self/clear_refs").exists() else ():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                yield Row("heads", label, each, alone.submit(megabytes, each, size).result(), "MB above the model")
