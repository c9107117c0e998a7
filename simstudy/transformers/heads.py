"""Heads of a transformer: projections and biases of every layer and head, whatever names a model gives them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simstudy.errors import UserError
from simstudy.transformers.checkpoints import Weights, read_weights


@dataclass(frozen=True)
class TransformerHeads:
    """Projections of the heads of all layers.

    Head h of layer l sees of a token x (after the norm that stands before attention, if one does) the query
    W_q'x + b_q, the key W_k'x + b_k and the value W_v'x + b_v, weighs values by the softmax of scale · query · key, and
    adds W_o times their weighted mean to the residual stream.

    Attributes
    ----------
    query, key, value, output : (L, H, d, p) arrays
        W_q, W_k, W_v and W_o.
    query_bias, key_bias, value_bias : (L, H, p) arrays
        No softmax sees the bias of the keys, unless positions rotate them.
    scale : float
        Of the logits; p^(-1/2) in most models.
    causal : bool
        Whether a token sees those before it and itself only.
    rotary_base : float or None
        Of rotary positions, in pairs (j, j + p/2) of dimensions, if the model has them.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    query_bias: np.ndarray
    key_bias: np.ndarray
    value_bias: np.ndarray
    scale: float
    causal: bool = False
    rotary_base: float | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.query)
        if len(shape) != 4 or not all(shape):
            raise ValueError(f"query has shape {shape}; give (layer, head, feature, dimension)")
        for field in fields(self)[:7]:
            wanted = (*shape[:2], shape[3]) if field.name.endswith("_bias") else shape
            array = getattr(self, field.name)
            if np.shape(array) != wanted:
                raise ValueError(f"{field.name} has shape {np.shape(array)}; give {wanted}, as query has {shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{field.name} holds NaN or infinity; give finite weights")
        if self.rotary_base is not None and shape[3] % 2:
            raise ValueError(f"rotary positions of heads of dimension {shape[3]}; give an even dimension")


class Convention(NamedTuple):
    """What a family of models calls its projections; {0} is the number of the layer.

    Attributes
    ----------
    query, key, value, output : str
        Names without ``.weight`` and ``.bias``; all of the first three are one name if they are one matrix.
    input_first : bool
        Whether matrices map rows, (in, out), as GPT-2's do, or columns, (out, in), as PyTorch's linear maps.
    causal : bool
    """

    query: str
    key: str
    value: str
    output: str
    input_first: bool = False
    causal: bool = False


_BERT = Convention(
    "encoder.layer.{0}.attention.self.query",
    "encoder.layer.{0}.attention.self.key",
    "encoder.layer.{0}.attention.self.value",
    "encoder.layer.{0}.attention.output.dense",
)
_ALBERT = Convention(
    "encoder.albert_layer_groups.{0}.albert_layers.0.attention.query",
    "encoder.albert_layer_groups.{0}.albert_layers.0.attention.key",
    "encoder.albert_layer_groups.{0}.albert_layers.0.attention.value",
    "encoder.albert_layer_groups.{0}.albert_layers.0.attention.dense",
)
_DISTILBERT = Convention(
    "transformer.layer.{0}.attention.q_lin",
    "transformer.layer.{0}.attention.k_lin",
    "transformer.layer.{0}.attention.v_lin",
    "transformer.layer.{0}.attention.out_lin",
)
_GPT2 = Convention(
    "h.{0}.attn.c_attn", "h.{0}.attn.c_attn", "h.{0}.attn.c_attn", "h.{0}.attn.c_proj", input_first=True, causal=True
)
_LLAMA = Convention(
    "layers.{0}.self_attn.q_proj",
    "layers.{0}.self_attn.k_proj",
    "layers.{0}.self_attn.v_proj",
    "layers.{0}.self_attn.o_proj",
    causal=True,
)

CONVENTIONS = {
    **dict.fromkeys(("bert", "roberta", "camembert", "xlm-roberta", "electra"), _BERT),
    "albert": _ALBERT,
    "distilbert": _DISTILBERT,
    "gpt2": _GPT2,
    **dict.fromkeys(("llama", "mistral", "qwen2"), _LLAMA),
}
"""By the ``model_type`` of the configuration that lies beside the weights of a model."""


def read_heads(weights: Any, config: Mapping[str, Any] | str | Path | None = None) -> TransformerHeads:
    """Read the heads of a transformer.

    Parameters
    ----------
    weights
        Path of a file (safetensors, PyTorch's, or .npz), arrays by name, or a ``torch.nn.Module``.
    config
        The model's configuration as Hugging Face writes it, or the path of its ``config.json``; of a module its own by
        default.  Its ``model_type`` is one of `CONVENTIONS`.

    Returns
    -------
    TransformerHeads
        Layers that share weights share memory.

    Raises
    ------
    UserError
        If the weights cannot be read, lack a projection, hold NaN, or do not fit the configuration.
    """
    if config is None:
        if not hasattr(weights, "config"):
            raise UserError("config is missing; give the model's config.json, or its entries")
        config = weights.config.to_dict()
    entries = read_config(config)
    with _named(config):
        said = _sizes(entries)
    arrays = load_arrays(weights)
    convention = CONVENTIONS[said.model_type]
    with _named(weights):
        layers = [_layer(arrays, said, convention, group) for group in range(said.n_groups)]
        query, key, value, output, *biases = (_stack([layer[k] for layer in layers], said.n_layers) for k in range(7))
        return TransformerHeads(
            query, key, value, output, biases[0], biases[1], biases[2],
            scale=said.head_dim**-0.5, causal=said.causal, rotary_base=said.rotary_base,
        )  # fmt: skip


@contextlib.contextmanager
def _named(source: Any) -> Iterator[None]:
    """Put the path of a file before what is wrong with its content."""
    try:
        yield
    except (UserError, ValueError) as error:
        raise UserError(f"{source}: {error}" if isinstance(source, (str, Path)) else str(error)) from None


def load_arrays(weights: Any) -> Weights:
    """Return the arrays of a file, a mapping or a module, by name."""
    if isinstance(weights, (str, Path)):
        return read_weights(weights)
    if hasattr(weights, "state_dict"):
        return {name: tensor.detach().cpu().float().numpy() for name, tensor in weights.state_dict().items()}
    if isinstance(weights, Mapping):
        return {str(name): np.asarray(array) for name, array in weights.items()}
    raise UserError(f"weights are of type {type(weights).__name__}; give a path, arrays by name, or a torch.nn.Module")


class _Sizes(NamedTuple):
    """What of a configuration the heads depend on."""

    model_type: str
    n_layers: int
    n_groups: int
    n_heads: int
    n_key_heads: int
    head_dim: int
    causal: bool
    rotary_base: float | None


def read_config(config: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return a configuration given as such, or as the path of a JSON file.

    Raises
    ------
    UserError
        If the file cannot be read, or holds no table.
    """
    if isinstance(config, Mapping):
        return dict(config)
    try:
        found = json.loads(Path(config).read_text())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{config}: no configuration ({why}); give the model's config.json") from None
    if not isinstance(found, dict):
        raise UserError(f"{config}: holds no table; give the model's config.json")
    return found


def _sizes(said: Mapping[str, Any]) -> _Sizes:
    model_type = said.get("model_type")
    if model_type not in CONVENTIONS:
        raise UserError(f"model_type = {model_type!r} in the configuration; known are {', '.join(CONVENTIONS)}")

    def whole(*names: str, default: int | None = None) -> int:
        found = next((said[name] for name in names if said.get(name) is not None), default)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise UserError(f"{names[0]} = {found!r} in the configuration; give a positive whole number")
        return found

    # Where transformers keeps what it says of rotary positions depends on its version.
    rotary = {"rope_theta": 10_000.0, **said, **(said.get("rope_scaling") or said.get("rope_parameters") or {})}
    _require_usual({**said, "rope_type": rotary.get("rope_type", rotary.get("type"))})
    n_layers = whole("num_hidden_layers", "n_layer", "n_layers")
    n_heads = whole("num_attention_heads", "n_head", "n_heads")
    return _Sizes(
        model_type,
        n_layers,
        whole("num_hidden_groups", default=1) if model_type == "albert" else n_layers,
        n_heads,
        whole("num_key_value_heads", default=n_heads),
        whole("head_dim", default=max(whole("hidden_size", "n_embd", "dim") // n_heads, 1)),
        CONVENTIONS[model_type].causal or bool(said.get("is_decoder")),
        float(rotary["rope_theta"]) if CONVENTIONS[model_type] is _LLAMA else None,
    )


def _require_usual(said: Mapping[str, Any]) -> None:
    """Refuse models whose logits are others than their projections give."""
    usual = {
        "rope_type": "default", "position_embedding_type": "absolute", "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
    }  # fmt: skip
    for name, value in usual.items():
        if said.get(name) not in (None, value):
            raise UserError(f"{name} = {said[name]!r} in the configuration; heads are read of models with {value!r}")


def _layer(arrays: Weights, said: _Sizes, convention: Convention, group: int) -> list[np.ndarray]:
    """Query, key, value, output (H, d, p) and the biases (H, p) of the first three."""
    names = [name.format(group) for name in convention[:4]]
    fused = names[0] == names[1]
    widths = [said.head_dim * count for count in (said.n_heads, said.n_key_heads, said.n_key_heads)]
    matrices, biases = [], []
    for k, width in enumerate(widths):
        columns = slice(sum(widths[:k]), sum(widths[: k + 1])) if fused else slice(None)
        weight = _array(arrays, f"{names[k]}.weight")
        weight = (weight if convention.input_first else weight.T)[:, columns]
        bias = _array(arrays, f"{names[k]}.bias", np.zeros(3 * width if fused else width, np.float32))[columns]
        if weight.shape[1] != width or bias.shape != (width,):
            raise UserError(
                f"{names[k]}.weight gives {weight.shape[1]} numbers, bias {bias.shape}; the configuration says "
                f"{width // said.head_dim} heads of dimension {said.head_dim}"
            )
        shared = said.n_heads * said.head_dim // width
        split = weight.reshape(len(weight), -1, said.head_dim).transpose(1, 0, 2)
        matrices.append(np.repeat(split, shared, axis=0))
        biases.append(np.repeat(bias.reshape(-1, said.head_dim), shared, axis=0))
    out = _array(arrays, f"{names[3]}.weight")
    out = out.T if convention.input_first else out
    if out.shape[1] != widths[0]:
        raise UserError(f"{names[3]}.weight takes {out.shape[1]} numbers; the configuration says {widths[0]}")
    return [*matrices, out.reshape(len(out), said.n_heads, said.head_dim).transpose(1, 0, 2), *biases]


def _array(arrays: Weights, name: str, default: np.ndarray | None = None) -> np.ndarray:
    """The array of this name, whatever stands before it."""
    found = [given for given in arrays if given == name or given.endswith(f".{name}")]
    if len(found) > 1:
        raise UserError(f"weights hold {name} {len(found)} times ({', '.join(found[:3])}); give one model")
    if found:
        return np.asarray(arrays[found[0]])
    if default is None:
        some = ", ".join(list(arrays)[:3])
        raise UserError(f"weights lack {name}, which the configuration's model_type has; they hold {some}, ...")
    return default


def _stack(layers: list[np.ndarray], n_layers: int) -> np.ndarray:
    """Layers (L, ...); groups of layers share the memory of one."""
    if len(layers) == 1:
        return np.broadcast_to(layers[0], (n_layers, *layers[0].shape))
    # Layers are dealt to groups in order, as evenly as can be.
    return np.stack([layers[layer * len(layers) // n_layers] for layer in range(n_layers)])
