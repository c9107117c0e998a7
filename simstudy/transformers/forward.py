"""Forward passes in NumPy: of encoders with norms after each part, as BERT and ALBERT, and of decoders like Llama.

Index legend: l layer; h head; t, s token; j, d feature; p dimension of a head.
"""

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
from scipy.special import softmax

from simstudy.errors import UserError
from simstudy.transformers.attention import attention_weights, project, visible
from simstudy.transformers.checkpoints import read_weights
from simstudy.transformers.heads import TransformerHeads, read_config, read_heads
from simstudy.transformers.interventions import Edit
from simstudy.transformers.modules import load_arrays
from simstudy.transformers.quantised import Quantised

_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class Encoding(NamedTuple):
    """What a forward pass computes of one sequence."""

    states: np.ndarray  # (L, T, d) What enters the attention of each layer
    output: np.ndarray  # (T, d) Hidden states of the last layer
    scores: np.ndarray | None  # (T, vocabulary) Logits of each place, of a model trained to restore masked tokens


class Encoder:
    """An encoder of the family of BERT or ALBERT; weights and configuration are as `read_heads` takes them."""

    def __init__(self, weights: Any, config: Mapping[str, Any] | str | Path) -> None:
        self._arrays = load_arrays(weights)
        said = read_config(config)
        self._shared = said.get("model_type") == "albert"
        if said.get("model_type") not in ("bert", "albert") or said.get("hidden_act") != "gelu":
            raise UserError(
                "the forward pass knows BERT and ALBERT with gelu; compute states with the model's own code"
            )
        self.heads: TransformerHeads = read_heads(self._arrays, said)
        self._epsilon = float(said.get("layer_norm_eps", 1e-12))
        self._found: dict[str, np.ndarray] = {}

    def __call__(
        self, tokens: Sequence[int], edit: Edit | None = None, begin: tuple[int, np.ndarray] | None = None
    ) -> Encoding:
        """Encode one sequence, all of whose tokens are real; ``edit`` may replace the weights of any layer.

        ``begin`` is a layer and the state that enters it, if that is known: layers before it are then left out.
        """
        first, state = (0, self._embed(np.asarray(tokens))) if begin is None else begin
        states = self._entering(state, first, edit)
        output = self._layer(len(self.heads.query) - 1, states[-1], edit)
        return Encoding(np.stack(states), output, self._scores(output))

    def states(self, tokens: Sequence[int]) -> np.ndarray:
        """What enters the attention of each layer (L, T, d): no time goes into what the last layer makes of it."""
        return np.stack(self._entering(self._embed(np.asarray(tokens))))

    def _entering(self, state: np.ndarray, first: int = 0, edit: Edit | None = None) -> list[np.ndarray]:
        """The states that enter each layer, from the first on."""
        states = [state]
        for layer in range(first, len(self.heads.query) - 1):
            states.append(self._layer(layer, states[-1], edit))
        return states

    def _layer(self, layer: int, state: np.ndarray, edit: Edit | None) -> np.ndarray:
        projected = project(self.heads, layer, state)
        weights = attention_weights(projected.query, projected.key, self.heads.scale)
        weights = weights if edit is None else edit(layer, weights)
        values = state @ self.heads.value[layer] + self.heads.value_bias[layer][:, None]
        return self._after(layer, state, weights @ values)

    def with_heads(self, heads: TransformerHeads) -> Self:
        """Return the same model with other heads."""
        other = copy.copy(self)
        other.heads = heads
        return other

    def _embed(self, tokens: np.ndarray) -> np.ndarray:
        parts = "word_embeddings", "position_embeddings", "token_type_embeddings"
        word, position, kind = (self._array(f"embeddings.{part}.weight") for part in parts)
        if len(tokens) > len(position) or tokens.max() >= len(word):
            raise ValueError(f"tokens: {len(tokens)} up to {tokens.max()}; the model knows {len(word)}, and takes "
                             f"{len(position)} at a time")  # fmt: skip
        state = self._norm(word[tokens] + position[: len(tokens)] + kind[0], "embeddings.LayerNorm")
        return self._linear(state, "encoder.embedding_hidden_mapping_in") if self._shared else state

    def _after(self, layer: int, state: np.ndarray, mixed: np.ndarray) -> np.ndarray:
        """The state after a layer whose heads give the mixed values (H, T, p)."""
        if self._shared:
            place = "encoder.albert_layer_groups.0.albert_layers.0"
            names = "attention.dense", "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"
        else:
            place = f"encoder.layer.{layer}"
            names = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
                     "output.LayerNorm")  # fmt: skip
        dense, first_norm, inner, outer, second_norm = (f"{place}.{name}" for name in names)
        output = self.heads.output[layer].swapaxes(0, 1).reshape(state.shape[1], -1)
        attended = mixed.swapaxes(0, 1).reshape(len(state), -1) @ output.T + self._array(f"{dense}.bias")
        state = self._norm(state + attended, first_norm)
        return self._norm(state + self._linear(_gelu(self._linear(state, inner)), outer), second_norm)

    def _scores(self, state: np.ndarray) -> np.ndarray | None:
        """By the transposed embedding of words, of a model that keeps what restores masked tokens."""
        head = "predictions" if self._shared else "cls.predictions"
        transform = f"{head}.dense" if self._shared else f"{head}.transform.dense"
        if f"{transform}.weight" not in self._arrays:
            return None
        norm = f"{head}.LayerNorm" if self._shared else f"{head}.transform.LayerNorm"
        restored = self._norm(_gelu(self._linear(state, transform)), norm)
        return restored @ self._array("embeddings.word_embeddings.weight").T + self._array(f"{head}.bias")

    def _linear(self, state: np.ndarray, name: str) -> np.ndarray:
        # Transposed, columns lie side by side: a product of few tokens takes a sixth less time.
        return state @ self._array(f"{name}.weight", "F").T + self._array(f"{name}.bias")

    def _norm(self, state: np.ndarray, name: str) -> np.ndarray:
        centred = state - state.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._epsilon)
        return scaled * self._array(f"{name}.weight") + self._array(f"{name}.bias")

    def _array(self, name: str, order: Literal["K", "F"] = "K") -> np.ndarray:
        if name not in self._found:
            found = next((given for given in self._arrays if given == name or given.endswith(f".{name}")), None)
            if found is None:
                raise UserError(f"weights lack {name}, which the forward pass needs; give those of the whole model")
            self._found[name] = np.asarray(self._arrays[found], order=order)
        return self._found[name]


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


class Decoder:
    """A decoder with root mean square norms before its parts and gated maps, of a GGUF file of the family of Llama."""

    def __init__(self, weights: Path) -> None:
        self._arrays = cast(Quantised, read_weights(weights))
        self.heads: TransformerHeads = read_heads(self._arrays)
        self.vocabulary = {token: number for number, token in enumerate(self._arrays.vocabulary)}
        self._epsilon = self._arrays.config["rms_norm_eps"]

    def __call__(self, tokens: Sequence[int], edit: Edit | None = None) -> Encoding:
        """Pass one sequence through all layers; ``edit`` may replace the weights of any layer."""
        return self.together([tokens], edit)[0]

    def together(self, texts: Sequence[Sequence[int]], edit: Edit | None = None) -> list[Encoding]:
        """Pass several sequences, laid end to end: in less time than one by one, as matrices are larger."""
        lengths = [len(tokens) for tokens in texts]
        states, stream = self._entering(np.concatenate(texts), lengths, edit)
        stream = self._layer(len(states) - 1, stream, states[-1], lengths, edit)
        outputs = np.split(self._normed(stream, "model.norm"), np.cumsum(lengths)[:-1])
        return [Encoding(own, output, None) for own, output in zip(_split(states, lengths), outputs, strict=True)]

    def states(self, texts: Sequence[Sequence[int]], see: Edit | None = None) -> list[np.ndarray]:
        """What enters the attention of each layer (L, T, d), without the rest of the last; ``see`` has all weights."""
        lengths = [len(tokens) for tokens in texts]
        states, _ = self._entering(np.concatenate(texts), lengths, see)
        if see is not None:
            self._mixed(len(states) - 1, states[-1], lengths, see)
        return _split(states, lengths)

    def _entering(
        self, tokens: np.ndarray, lengths: list[int], edit: Edit | None
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """What enters the attention of each layer, and the residual stream before the last layer."""
        stream = self._array("model.embed_tokens")[tokens]
        states: list[np.ndarray] = []
        for layer in range(len(self.heads.query)):
            stream = self._layer(layer - 1, stream, states[-1], lengths, edit) if layer else stream
            states.append(self._normed(stream, f"model.layers.{layer}.input_layernorm"))
        return states, stream

    def _layer(
        self, layer: int, stream: np.ndarray, state: np.ndarray, lengths: list[int], edit: Edit | None
    ) -> np.ndarray:
        """The residual stream after a layer, from that before it and what enters attention."""
        values = self._mixed(layer, state, lengths, edit).swapaxes(0, 1).reshape(len(state), -1)
        stream = stream + values @ self._array(f"model.layers.{layer}.self_attn.o_proj", "F").T
        return stream + self._between(layer, stream)

    def _mixed(self, layer: int, state: np.ndarray, lengths: list[int], edit: Edit | None) -> np.ndarray:
        """Values (H, T, p), averaged by the weights of each head."""
        places, ends, mixed = [np.arange(length) for length in lengths], np.cumsum(lengths)[:-1], []
        projected = project(self.heads, layer, state, np.concatenate(places))
        parts = (*projected, self.heads.shared_product(state, self.heads.value[layer]))
        for own, query, key, value in zip(places, *(np.split(part, ends, axis=1) for part in parts), strict=True):
            weights = attention_weights(query, key, self.heads.scale, visible(self.heads, layer, own))
            mixed.append((weights if edit is None else edit(layer, weights)) @ value)
        return np.concatenate(mixed, axis=1)

    def losses(self, outputs: Sequence[np.ndarray], texts: Sequence[Sequence[int]]) -> list[float]:
        """Of each text, of which this is the output, minus the mean log probability of a token, given those before."""
        states = np.concatenate([output[:-1] for output in outputs])
        following = np.concatenate([tokens[1:] for tokens in texts])
        scores = states @ self._array("model.embed_tokens").T
        scores -= scores.max(axis=1, keepdims=True)
        own = scores[np.arange(len(states)), following]
        # In place: of 49 000 tokens each copy would take as long as a tenth of the product.
        known = own - np.log(np.exp(scores, out=scores).sum(axis=1))
        ends = np.cumsum([len(tokens) - 1 for tokens in texts])[:-1]
        return [-float(each.mean()) for each in np.split(known, ends)]

    def _between(self, layer: int, stream: np.ndarray) -> np.ndarray:
        place = f"model.layers.{layer}."
        state = self._normed(stream, f"{place}post_attention_layernorm")
        gate, up, down = (self._array(f"{place}mlp.{name}_proj", "F").T for name in ("gate", "up", "down"))
        opened = state @ gate
        # x / (1 + e^-x), which a vectorised tanh gives in a quarter of the time of `scipy.special`.
        return (0.5 * opened * (1 + np.tanh(0.5 * opened)) * (state @ up)) @ down

    def _normed(self, stream: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((stream**2).mean(axis=-1, keepdims=True) + self._epsilon)
        return stream / scale.astype(stream.dtype) * self._array(name)

    @functools.cache  # noqa: B019
    def _array(self, name: str, order: Literal["K", "F"] = "K") -> np.ndarray:
        return np.asarray(self._arrays[f"{name}.weight"], order=order)


def _split(states: list[np.ndarray], lengths: list[int]) -> list[np.ndarray]:
    """States (L, T, d) of each text, from those of all texts, by layer."""
    return np.split(np.stack(states), np.cumsum(lengths)[:-1], axis=1)
