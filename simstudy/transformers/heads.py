"""Heads of a transformer: projections and biases of every layer and head, whatever names a model gives them."""

import contextlib
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simstudy.arguments import real_array
from simstudy.design.files import read_regular
from simstudy.errors import UserError
from simstudy.transformers.checkpoints import Weights
from simstudy.transformers.conventions import Convention, Sizes, sizes_of
from simstudy.transformers.modules import ARRAYS, described_arrays, load_arrays

_MAX_CONFIG_BYTES = 1 << 20
_BIASES = ("query_bias", "key_bias", "value_bias")


@dataclass(frozen=True)
class TransformerHeads:
    """Projections of the heads of all layers.

    Head h of layer l sees of a token x (after the norm that stands before attention, if one does) the query
    W_q'x + b_q, the key W_k'x + b_k and the value W_v'x + b_v, weighs values by the softmax of scale · query · key, and
    adds W_o times their weighted mean to the residual stream.

    Attributes
    ----------
    query, key, value, output : (L, H, d, p) arrays
        W_q, W_k, W_v and W_o.  Nothing is said of what heads write where values or outputs are not given.
    query_bias, key_bias, value_bias : (L, H, p) arrays
        Zeros by default.  No softmax sees the bias of the keys, unless positions rotate them.
    scale : float
        Of the logits; p^(-1/2), as in most models, by default.
    causal : bool
        Whether a token sees those before it and itself only.
    rotary_base : float or None
        Of rotary positions, in pairs (j, j + r/2) of the first r dimensions, if the model has them.
    rotary_factors : (L, r/2) or (r/2,) array
        On their frequencies: ones for all dimensions by default.
    query_norm, key_norm : (L, p) arrays or None
        Weights of root mean square norms on queries and keys, before positions.
    window : (L,) tuple of int or None, or one for all layers
        A token sees those that are fewer places than this away from it; None where it sees all.
    cap : float or None
        Logits are cap · tanh(logit / cap), if given; theory is then blank.
    """

    query: np.ndarray
    key: np.ndarray
    # Any: defaults are filled in, and who reads values of a model knows that it has them.
    value: Any = None
    output: Any = None
    query_bias: Any = None
    key_bias: Any = None
    value_bias: Any = None
    scale: Any = None
    causal: bool = False
    rotary_base: float | None = None
    rotary_factors: Any = None
    query_norm: Any = None
    key_norm: Any = None
    window: Any = None
    cap: float | None = None

    def __post_init__(self) -> None:
        shape, held = np.shape(self.query), vars(self)  # which a frozen class may still fill in
        if len(shape) != 4 or not all(shape):
            raise ValueError(f"query has shape {shape}; give (layer, head, feature, dimension)")
        bias = np.zeros((*shape[:2], shape[3]), np.asarray(self.query).dtype)
        defaults = {"scale": shape[3] ** -0.5, **dict.fromkeys(_BIASES, bias)}
        held |= {name: default for name, default in defaults.items() if held[name] is None}
        for name in ("scale", "rotary_base"):
            if held[name] is not None and not 0 < held[name] < math.inf:
                raise ValueError(f"{name} = {held[name]}; give a positive number")
        for name, array in list(held.items())[:7]:
            if array is None and name in ("value", "output"):
                continue
            wanted = bias.shape if name in _BIASES else shape
            if np.shape(array) != wanted:
                raise ValueError(f"{name} has shape {np.shape(array)}; give {wanted}, as query has {shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} holds NaN or infinity; give finite weights")
        held |= {"window": self._windows(shape[0])}
        if self.rotary_base is not None:
            if self.rotary_factors is None and shape[3] % 2:
                raise ValueError(f"rotary positions of heads of dimension {shape[3]}; give an even dimension")
            factors = np.ones(shape[3] // 2) if self.rotary_factors is None else self.rotary_factors
            held |= {"rotary_factors": np.broadcast_to(factors, (shape[0], factors.shape[-1]))}

    def _windows(self, n_layers: int) -> tuple[int | None, ...]:
        windows = self.window if isinstance(self.window, tuple) else (self.window,) * n_layers
        if len(windows) != n_layers or any(each is not None and each not in range(2, 1 << 31) for each in windows):
            raise ValueError(f"window = {self.window}; give a whole number from 2 on, or one or None for each layer")
        return windows

    @functools.cached_property
    def _sharing(self) -> int:
        """How many heads in a row have one key and value, as grouped queries do (Ainslie et al. 2023)."""
        given = [array for array in (self.key, self.value) if array is not None]
        first = [
            h
            for h in range(self.query.shape[1])
            if not h or any((array[:, h] != array[:, h - 1]).any() for array in given)
        ]
        shared = self.query.shape[1] // len(first)
        return shared if first == list(range(0, self.query.shape[1], shared)) else 1

    def linear(self, part: str, layer: int, states: np.ndarray) -> np.ndarray:
        """The key or value (H, T, p) of each token, of states (T, d); matrices that are shared are multiplied once."""
        matrices, biases = getattr(self, part)[layer], getattr(self, f"{part}_bias")[layer]
        return np.repeat(states @ matrices[:: self._sharing], self._sharing, axis=0) + biases[:, None]


_WANTED = (
    "W_Q and W_K of shape (head, feature, dimension), or (layer, head, feature, dimension), and where there are such "
    f"{', '.join(list(ARRAYS)[2:])}"
)


def read_heads(weights: Any, config: Mapping[str, Any] | str | Path | None = None) -> TransformerHeads:
    """Read the heads of a transformer.

    Parameters
    ----------
    weights
        Path of a file (safetensors or the index of its parts, PyTorch's, GGUF, ONNX, or .npz), arrays by name, or a
        ``torch.nn.Module``.  GGUF has its configuration.  Without one: ``W_Q`` and ``W_K`` (head, feature, dimension),
        or with layers before that; and, where there are such, ``W_V``, of which as of ``W_K`` several heads may share
        one; ``W_O`` (..., dimension, feature), biases ``b_Q``, ``b_K`` and ``b_V`` (..., dimension), numbers ``scale``
        of the logits, ``rotary_base``, ``rotary_dim`` and ``window``, and a truth value ``causal``.  These are
        TransformerLens' names, whose models and their weights by layer (``blocks.0.attn.W_Q``) are read too.
    config
        The model's configuration as Hugging Face writes it, or the path of its ``config.json``; of a module its own by
        default.  Its ``model_type`` is one of `conventions.CONVENTIONS`.  A module without one has its heads in
        ``torch.nn.MultiheadAttention`` (whether they are causal it does not say), or is of TransformerLens.

    Returns
    -------
    TransformerHeads
        Layers that share weights share memory.

    Raises
    ------
    UserError
        If the weights cannot be read, lack a projection, hold NaN, or do not fit the configuration.
    """
    arrays, config = (load_arrays(weights), config) if config is not None else described_arrays(weights)
    if config is None:
        with _named(weights):
            return _heads_of(arrays)
    entries = read_config(config)
    with _named(config):
        said = sizes_of(entries)
    with _named(weights):
        convention = said.convention.of(arrays)
        layers = [_layer(arrays, said, convention, group) for group in range(said.n_groups)]
        query, key, value, output, query_bias, key_bias, value_bias, *norms = (
            _stack(parts, said.n_layers) for parts in zip(*layers, strict=True)
        )
        if said.settings["rotary_factors"] is not None:
            slower = array_of(arrays, "rope_freqs.weight", np.ones(1))  # in GGUF of Llama 3
            said.settings["rotary_factors"] = said.settings["rotary_factors"] / slower
        query_norm, key_norm = norms or (None, None)
        return TransformerHeads(
            query,
            key,
            value,
            output,
            query_bias,
            key_bias,
            value_bias,
            query_norm=query_norm,
            key_norm=key_norm,
            **said.settings,
        )


def _heads_of(arrays: Weights) -> TransformerHeads:
    """Heads of arrays that are called as `ARRAYS` says."""
    if not {"W_Q", "W_K"} <= arrays.keys() <= ARRAYS.keys():
        held = ", ".join(sorted(arrays.keys() - ARRAYS.keys())[:3] or arrays) or "nothing"
        raise UserError(
            f"config is missing, and weights hold {held}; give the model's config.json, or {_WANTED}, alone"
        )
    shape = arrays["W_Q"].shape
    if len(shape) not in (3, 4) or not all(shape):
        raise UserError(f"W_Q has shape {shape}; give {_WANTED}")
    *outer, features, p = shape
    wanted = dict.fromkeys(ARRAYS, ()) | dict.fromkeys(("W_Q", "W_K", "W_V"), shape)
    wanted |= {"W_O": (*outer, p, features)} | dict.fromkeys(("b_Q", "b_K", "b_V"), (*outer, p))
    for name in ("W_K", "W_V", "b_K", "b_V"):
        axis = -3 if name.startswith("W") else -2
        if name in arrays and arrays[name].ndim == len(wanted[name]):
            n_heads = arrays[name].shape[axis]
            if n_heads and shape[-3] % n_heads == 0:
                arrays[name] = np.repeat(arrays[name], shape[-3] // n_heads, axis)
    for name, array in arrays.items():
        real_array(name, array, f"of shape {wanted[name]}", "b" if name == "causal" else "fiu")
        if array.shape != wanted[name]:
            raise UserError(f"{name} has shape {array.shape}; give {wanted[name]}, as W_Q has {shape}")
    fields_of: dict[str, Any] = {ARRAYS[name]: array if array.ndim else array.item() for name, array in arrays.items()}
    if "W_O" in arrays:
        fields_of["output"] = arrays["W_O"].mT
    if "rotary_dim" in arrays:
        fields_of["rotary_factors"] = _unscaled(fields_of["rotary_factors"], p)
    one = len(shape) == 3
    return TransformerHeads(**{name: each[None] if one and np.ndim(each) else each for name, each in fields_of.items()})


@contextlib.contextmanager
def _named(source: Any) -> Iterator[None]:
    """Put the path of a file before what is wrong with its content."""
    try:
        yield
    except (UserError, ValueError) as error:
        raise UserError(f"{source}: {error}" if isinstance(source, (str, Path)) else str(error)) from None


def read_config(config: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return a configuration given as such, or as the path of a JSON file."""
    if isinstance(config, Mapping):
        return dict(config)
    try:
        found = json.loads(read_regular(Path(config), _MAX_CONFIG_BYTES))
    except (UserError, ValueError, RecursionError) as error:  # the last: nested beyond what the parser bears
        raise UserError(f"{config}: no configuration ({error}); give the model's config.json") from None
    if not isinstance(found, dict):
        raise UserError(f"{config}: holds no table; give the model's config.json")
    return found


def _unscaled(turned: float, head_dim: int) -> np.ndarray:
    """Factors on the frequencies of so many dimensions that are turned."""
    if not 2 <= turned <= head_dim or turned % 2:
        raise UserError(f"rotary_dim = {turned}; give an even number from 2 to the dimension of heads, {head_dim}")
    return np.ones(int(turned) // 2)


def _layer(arrays: Weights, said: Sizes, convention: Convention, group: int) -> list[np.ndarray]:
    """Query, key, value, output (H, d, p), biases (H, p) of the first three, and norms (p,), if there are such."""
    names, p = [name.format(group) for name in convention[:4]], said.head_dim
    widths = [p * count for count in (said.n_heads, said.n_key_heads, said.n_key_heads)]
    if names[0] != names[1]:
        parts = [_linear(arrays, *each, convention) for each in zip(names, widths, strict=False)]
    elif convention.by_head:
        whole = _linear(arrays, names[0], sum(widths), convention)
        parts = list(whole.reshape(len(whole), said.n_heads, 3, p).transpose(2, 0, 1, 3).reshape(3, len(whole), -1))
    else:
        parts = np.split(_linear(arrays, names[0], sum(widths), convention), np.cumsum(widths)[:2], axis=1)
    heads = [
        np.repeat(part.reshape(len(part), -1, p).swapaxes(0, 1), widths[0] // part.shape[1], axis=0) for part in parts
    ]
    out = _matrix(arrays, names[3], widths[0], convention.input_first)
    output = out.reshape(len(out), said.n_heads, p).swapaxes(0, 1)
    normed = names[:2] if convention.normed else ()
    norms = [array_of(arrays, f"{name.removesuffix('_proj')}_norm.weight") for name in normed]
    return [*(part[:, :-1] for part in heads), output, *(part[:, -1] for part in heads), *norms]


def _linear(arrays: Weights, name: str, width: int, convention: Convention) -> np.ndarray:
    """The matrix (d, width) of a linear map, and its bias as a last row."""
    weight = _matrix(arrays, name, width, not convention.input_first)
    bias = array_of(arrays, f"{name}.bias", np.zeros(width, weight.dtype))
    if bias.shape != (width,):
        raise _unfit(f"{name}.bias", bias.shape, width)
    return np.vstack([weight, bias])


def _matrix(arrays: Weights, name: str, width: int, turned: bool) -> np.ndarray:
    """Weights (d, width); others are refused before anything is made of the size that the configuration says."""
    found = array_of(arrays, f"{name}.weight")
    weight = found.T if turned else found
    if weight.ndim != 2 or not weight.size or weight.shape[1] != width:
        raise _unfit(f"{name}.weight", found.shape, width)
    return weight


def _unfit(name: str, shape: tuple[int, ...], width: int) -> UserError:
    return UserError(
        f"{name} has shape {shape}; the configuration says {width} numbers, dimensions of all heads; "
        "give the config.json of these weights"
    )


def array_of(arrays: Weights, name: str, default: np.ndarray | None = None) -> np.ndarray:
    """The array of this name, whatever stands before it."""
    found = [given for given in arrays if given == name or given.endswith(f".{name}")]
    if len(found) > 1:
        raise UserError(f"weights hold {name} {len(found)} times ({', '.join(found[:3])}); give one model")
    if found:
        return np.asarray(arrays[found[0]])
    if default is None:
        some = ", ".join(list(arrays)[:3])
        raise UserError(
            f"weights lack {name}, which the configuration's model_type has; they hold {some}, ...; "
            f"give the weights of that model, or no configuration and {_WANTED}"
        )
    return default


def _stack(layers: Sequence[np.ndarray], n_layers: int) -> np.ndarray:
    """Layers (L, ...); groups of layers share the memory of one."""
    if len(layers) == 1:
        return np.broadcast_to(layers[0], (n_layers, *layers[0].shape))
    # Layers are dealt to groups in order, as evenly as can be.
    return np.stack([layers[layer * len(layers) // n_layers] for layer in range(n_layers)])
