"""Models of torch, and arrays by name: what they hold, and what enters the attention of each of their layers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simstudy.errors import UserError
from simstudy.transformers.checkpoints import Weights, read_weights
from simstudy.transformers.conventions import sizes_of
from simstudy.transformers.quantised import Quantised

ARRAYS = {
    "W_Q": "query", "W_K": "key", "W_V": "value", "W_O": "output", "b_Q": "query_bias", "b_K": "key_bias",
    "b_V": "value_bias", "scale": "scale", "causal": "causal", "rotary_base": "rotary_base",
    "rotary_dim": "rotary_factors", "window": "window",
}  # fmt: skip
"""What arrays are called that come without a configuration, and the fields of `TransformerHeads` that they fill."""
_ALONE = "layers.0.self_attn."
"""Where the weights of one attention of torch are put: they are a model of one layer."""
_LENS = re.compile(r"blocks\.(\d+)\.attn\._?([Wb]_[QKV]|W_O)")
_UNUSUAL = ("use_local_attn", "use_qk_norm", "rotary_adjacent_pairs", "scale_attn_by_inverse_layer_idx",
            "use_NTK_by_parts_rope")  # fmt: skip


def collect_states(model: Any, *inputs: Any, **named: Any) -> np.ndarray:
    """Run a model of torch once and return what enters the attention of each layer.

    Parameters
    ----------
    model : torch.nn.Module
        Of a family that `read_heads` knows, or with its attention in ``torch.nn.MultiheadAttention``.
    *inputs, **named
        What the model is called with: sequences of one length, padded if they are not.

    Returns
    -------
    (layer, sequence, token, feature) array
        For `inspect_heads`.

    Raises
    ------
    UserError
        If no attention is found in the model, or it does not run once in each layer.
    """
    seen: list[np.ndarray] = []

    def take(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        states = next(iter((*given, *named.values()))).detach().cpu().float()
        states = states[None] if states.ndim == 2 else states
        seen.append((states if getattr(module, "batch_first", True) else states.swapaxes(0, 1)).numpy())

    places, n_layers = _places(model)
    hooks = [each.register_forward_pre_hook(take, with_kwargs=True) for each in places]
    try:
        model(*inputs, **named)
    finally:
        for hook in hooks:
            hook.remove()
    if len(seen) != n_layers:
        raise UserError(f"attention ran {len(seen)} times in {n_layers} layers; run the model once, without its cache")
    return np.stack(seen)


def _places(model: Any) -> tuple[list[Any], int]:
    """Modules that states enter: projections of queries, or attention that holds them, and the number of layers."""
    if hasattr(model, "blocks") and hasattr(model, "cfg"):
        found = [block.attn for block in model.blocks]
    elif hasattr(getattr(model, "config", None), "to_dict"):
        modules, said = dict(model.named_modules()), sizes_of(model.config.to_dict())
        wanted = [said.convention.of(modules).query.format(group) for group in range(said.n_groups)]
        return [
            each for place in wanted for name, each in modules.items() if name == place or name.endswith(f".{place}")
        ], said.n_layers
    else:
        found = _attentions(model)
    if not found:
        raise UserError("no configuration and no torch.nn.MultiheadAttention in the model; take its states yourself")
    return found, len(found)


def _attentions(module: Any) -> list[Any]:
    """Every ``torch.nn.MultiheadAttention`` of a module in which tokens look at one another."""
    return [
        each
        for name, each in module.named_modules()
        if getattr(each, "in_proj_weight", None) is not None and not name.endswith("multihead_attn")
    ]


def load_arrays(weights: Any) -> Weights:
    """Return the arrays of a file, a mapping or a module, by name."""
    if isinstance(weights, (str, Path)):
        arrays: Mapping[Any, Any] = read_weights(weights)
    elif hasattr(weights, "state_dict"):
        arrays = getattr(weights, "original_model", weights).state_dict()
    elif isinstance(weights, Mapping):
        arrays = weights
    else:
        kind = type(weights).__name__
        raise UserError(f"weights are of type {kind}; give a path, arrays by name, or a torch.nn.Module")
    if isinstance(arrays, Quantised):
        return arrays
    # TransformerLens wraps the modules of others, and torch.nn.MultiheadAttention joins words otherwise than all.
    place = _ALONE if "in_proj_weight" in arrays else ""
    return {
        place + str(name).replace("._original_component", "").replace("in_proj_", "in_proj."): np.asarray(
            array.detach().cpu().float().numpy() if hasattr(array, "detach") else array
        )
        for name, array in arrays.items()
    }


def described_arrays(weights: Any) -> tuple[Weights, Mapping[str, Any] | None]:
    """Return the arrays of what is given without a configuration, and its own, if it has one.

    Arrays without one are called as `ARRAYS` says, if they can be read so.
    """
    if hasattr(getattr(weights, "config", None), "to_dict"):
        return load_arrays(weights), weights.config.to_dict()
    if hasattr(weights, "modules") and (found := _attentions(weights)):
        sizes = {(each.num_heads, each.in_proj_weight.shape[1]) for each in found}
        if len(sizes) > 1:
            raise UserError(f"{len(found)} attentions of several sizes; give one of them, or layers of one size")
        config = dict(zip(("num_attention_heads", "hidden_size"), *sizes, strict=True))
        layers = ((layer, *item) for layer, each in enumerate(found) for item in load_arrays(each).items())
        arrays = {name.replace(_ALONE, _ALONE.replace("0", str(layer))): array for layer, name, array in layers}
        return arrays, config | {"model_type": "torch", "num_hidden_layers": len(found)}
    arrays = load_arrays(weights)
    by_layer: dict[str, dict[int, np.ndarray]] = {}
    for name, array in arrays.items():
        if match := _LENS.fullmatch(name):
            by_layer.setdefault(match[2], {})[int(match[1])] = array
    if not by_layer:
        return arrays, getattr(arrays, "config", None)
    said = _settings(weights.cfg) if hasattr(weights, "cfg") else {"causal": True}
    said |= {name: array for name, array in arrays.items() if name in ARRAYS}
    if any("rotary" in name for name in arrays) and "rotary_base" not in said:
        raise UserError("weights have rotary positions; give rotary_base, and rotary_dim, beside them")
    stacked = {name: np.stack([layers[k] for k in sorted(layers)]) for name, layers in by_layer.items()}
    return stacked | {name: np.asarray(value) for name, value in said.items()}, None


def _settings(said: Any) -> dict[str, Any]:
    """What the configuration of a model of TransformerLens says of its heads, as `ARRAYS` names it."""
    unusual = [name for name in _UNUSUAL if getattr(said, name, False)]
    position, cap = said.positional_embedding_type, getattr(said, "attn_scores_soft_cap", -1.0)
    if unusual or cap > 0 or position in ("alibi", "relative_positional_bias"):
        what = unusual[0] if unusual else f"attn_scores_soft_cap = {cap}, positional_embedding_type = {position!r}"
        raise UserError(f"cfg says {what}, with which heads are not read; give the model as transformers has it")
    found: dict[str, Any] = {"causal": said.attention_dir == "causal"}
    if not said.use_attn_scale or said.attn_scale > 0:
        found["scale"] = 1 / said.attn_scale if said.use_attn_scale else 1.0
    if position == "rotary":
        found |= {"rotary_base": float(said.rotary_base), "rotary_dim": said.rotary_dim}
    return found
