"""Trained transformers whose weights lie in installed packages, which are never imported: their code needs torch."""

from __future__ import annotations

import importlib.util
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
