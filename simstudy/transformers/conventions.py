"""What families of models call their projections, and what their configurations say of them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from simstudy.errors import UserError

_MAX_SIZE, _MAX_LAYERS, _MAX_HEAD, _MAX_NUMBER = 1 << 20, 1 << 10, 1 << 12, 1e15

_FULL, _SLIDES = "full_attention", "sliding_attention"


class Convention(NamedTuple):
    """What a family of models calls its projections, without ``.weight`` and ``.bias``; {0} is the number of the layer.

    The first three are one name if they are one matrix.
    """

    query: str
    key: str
    value: str
    output: str
    input_first: bool = False  # Matrices map rows, (in, out), as GPT-2's do; else columns, as PyTorch's linear maps
    causal: bool = False
    rotary: bool = False
    by_head: bool = False  # One matrix holds query, key and value of one head after the other
    normed: bool = False  # Queries and keys
    other: "Convention | None" = None  # In modules of newer versions of transformers, or in GGUF files

    def of(self, names: Iterable[str]) -> "Convention":
        """The same by the names of this version or file, of which some are given."""
        other = self.other
        return other if other and any(other.query.format(0) in name for name in names) else self


def _at(place: str, names: str, **how: Any) -> Convention:
    query, key, value, output = (place + name for name in names.split())
    return Convention(query, key, value, output, **how)


_GGUF = _at("blk.{0}.", "attn_q attn_k attn_v attn_output")
_PROJECTIONS = "q_proj k_proj v_proj o_proj"
_BERT = _at("encoder.layer.{0}.attention.", "self.query self.key self.value output.dense")
_VIT = _at("encoder.layer.{0}.attention.", "attention.query attention.key attention.value output.dense")
_BART = _at("encoder.layers.{0}.self_attn.", "q_proj k_proj v_proj out_proj")
_LLAMA = _at("layers.{0}.self_attn.", _PROJECTIONS, causal=True, rotary=True, other=_GGUF)

CONVENTIONS = {
    **dict.fromkeys(("bert", "roberta", "camembert", "xlm-roberta", "electra"), _BERT),
    "esm": _BERT._replace(rotary=True),
    "albert": _at("encoder.albert_layer_groups.{0}.albert_layers.0.attention.", "query key value dense"),
    "distilbert": _at("transformer.layer.{0}.attention.", "q_lin k_lin v_lin out_lin"),
    **dict.fromkeys(("vit", "deit"), _VIT._replace(other=_at("layers.{0}.attention.", _PROJECTIONS))),
    "dinov2": _VIT._replace(other=_at("encoder.layer.{0}.attention.", _PROJECTIONS)),
    **dict.fromkeys(("bart", "mbart", "whisper"), _BART),
    "gpt2": _at("h.{0}.attn.", "c_attn c_attn c_attn c_proj", input_first=True, causal=True),
    "modernbert": _at("layers.{0}.attn.", "Wqkv Wqkv Wqkv Wo", rotary=True),
    "gpt_neox": _at(
        "layers.{0}.attention.", "query_key_value query_key_value query_key_value dense",
        causal=True, rotary=True, by_head=True,
    ),
    "phi": _at("layers.{0}.self_attn.", "q_proj k_proj v_proj dense", causal=True, rotary=True),
    **dict.fromkeys(("llama", "mistral", "qwen2", "gemma", "gemma2", "stablelm"), _LLAMA),
    "qwen3": _LLAMA._replace(normed=True, other=_GGUF._replace(normed=True)),
    "torch": _at("layers.{0}.self_attn.", "in_proj in_proj in_proj out_proj"),
    "timm": _at("blocks.{0}.attn.", "qkv qkv qkv proj"),
}  # fmt: skip
"""By the ``model_type`` of the configuration beside the weights of a model; of BART and Whisper the encoder.

``torch`` is a ``torch.nn.TransformerEncoder`` and ``timm`` a vision transformer of that library: they have no
configuration, and the caller writes one.
"""


class Sizes(NamedTuple):
    """What of a configuration the heads depend on; ``settings`` are fields of `TransformerHeads` beside its arrays."""

    convention: Convention
    n_layers: int
    n_groups: int
    n_heads: int
    n_key_heads: int
    head_dim: int
    settings: dict[str, Any]


def sizes_of(said: Mapping[str, Any]) -> Sizes:
    """Read a configuration; UserError if the family is not known, or logits are others than projections give."""
    model_type = said.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONVENTIONS:
        raise UserError(f"model_type = {model_type!r} in the configuration; known are {', '.join(CONVENTIONS)}")
    convention = CONVENTIONS[model_type]

    def whole(*names: str, default: int | None = None) -> int:
        found = next((said[name] for name in names if said.get(name) is not None), default)
        most = {"num_hidden_layers": _MAX_LAYERS, "head_dim": _MAX_HEAD}.get(names[0], _MAX_SIZE)
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
            raise UserError(f"{names[0]} = {found!r} in the configuration; give a whole number from 1 to {most}")
        return found

    rotary = convention.rotary and said.get("position_embedding_type") in (None, "rotary")
    _require_usual({**said, "position_embedding_type": None} if rotary else said)
    n_layers = whole("num_hidden_layers", "n_layer", "n_layers", "encoder_layers")
    n_heads = whole("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads")
    head_dim = whole("head_dim", default=max(whole("hidden_size", "n_embd", "dim", "d_model") // n_heads, 1))
    base, factors = _rotary(said, head_dim, n_layers) if rotary else (None, None)
    windowed = said.get("use_sliding_window", model_type in ("mistral", "gemma2")) and said.get("sliding_window")
    window = whole("sliding_window") if windowed else None
    window = whole("local_attention") // 2 + 1 if model_type == "modernbert" else window
    cap = said.get("attn_logit_softcapping")
    settings = {
        "scale": _positive("query_pre_attn_scalar", said.get("query_pre_attn_scalar", head_dim)) ** -0.5,
        "causal": convention.causal or bool(said.get("is_decoder")),
        "rotary_base": base,
        "rotary_factors": factors,
        "window": tuple(window if kind == _SLIDES else None for kind in _kinds(said, n_layers)),
        "cap": None if cap is None else _positive("attn_logit_softcapping", cap),
    }
    n_groups = whole("num_hidden_groups", default=1) if model_type == "albert" else n_layers
    n_key_heads = whole("num_key_value_heads", default=n_heads)
    return Sizes(convention, n_layers, n_groups, n_heads, n_key_heads, head_dim, settings)


def _rotary(said: Mapping[str, Any], head_dim: int, n_layers: int) -> tuple[float, np.ndarray]:
    """Base of rotary positions, and factors (L, r/2) on the frequencies of all pairs of dimensions that turn."""
    # Where transformers keeps what it says of rotary positions depends on its version.
    place = "rope_scaling" if said.get("rope_scaling") else "rope_parameters"
    scaling = said.get(place) or {}
    if "global_rope_theta" in said:  # ModernBERT's, before rope_parameters
        places = {_SLIDES: "local", _FULL: "global"}
        scaling = {kind: {"rope_theta": said.get(f"{name}_rope_theta")} for kind, name in places.items()}
    if not isinstance(scaling, Mapping):
        raise UserError(f"{place} = {scaling!r} in the configuration; give a table with rope_type, or null")
    by_layer = [scaling]
    if any(isinstance(each, Mapping) for each in scaling.values()):
        kinds = _kinds(said, n_layers)
        if missing := set(kinds) - scaling.keys():
            raise UserError(f"{place} = {scaling!r} in the configuration; give {', '.join(sorted(missing))}, too")
        by_layer = [scaling[kind] for kind in kinds]
    found = [_frequencies(said, each, head_dim) for each in by_layer]
    base = found[0][0]
    factors = [own * (other / base) ** (-np.arange(len(own)) / max(len(own), 1)) for other, own in found]
    return base, np.broadcast_to(factors, (n_layers, len(factors[0])))


def _kinds(said: Mapping[str, Any], n_layers: int) -> list[str]:
    """Which layers slide if there is a window; older versions of transformers did not write it down."""
    if (kinds := said.get("layer_types")) is None:
        every, first = (said.get(name) for name in ("global_attn_every_n_layers", "max_window_layers"))
        full = {
            "gemma2": lambda: range(1, n_layers, 2),
            "modernbert": lambda: range(0, n_layers, max(1, int(_positive("global_attn_every_n_layers", every)))),
        }.get(said["model_type"], lambda: range(int(_positive("max_window_layers", first)) if first else 0))()
        return [_FULL if layer in full else _SLIDES for layer in range(n_layers)]
    if not isinstance(kinds, list) or len(kinds) != n_layers or not all(kind in (_FULL, _SLIDES) for kind in kinds):
        raise UserError(f"layer_types = {kinds!r} in the configuration; give {_FULL} or {_SLIDES} for each layer")
    return kinds


def _frequencies(said: Mapping[str, Any], scaling: Mapping[str, Any], head_dim: int) -> tuple[float, np.ndarray]:
    """Base of rotary positions of one layer, and factors on its frequencies."""
    given = {
        "rope_theta": said.get("rotary_emb_base", 10_000.0), "partial_rotary_factor": said.get("rotary_pct", 1.0),
        **said, **scaling,
    }  # fmt: skip
    kind = given.get("rope_type", given.get("type")) or "default"
    names = {
        "default": (), "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    }  # fmt: skip
    if not isinstance(kind, str) or kind not in names:
        raise UserError(f"rope_type = {kind!r} in the configuration; known are {', '.join(names)}")
    values = {name: _positive(name, given.get(name)) for name in ("rope_theta", "partial_rotary_factor", *names[kind])}
    half = int(head_dim * min(values["partial_rotary_factor"], 1.0)) // 2
    share = np.zeros(half)  # of each frequency that stays
    if kind == "llama3":
        turns = values["original_max_position_embeddings"] * values["rope_theta"] ** (-np.arange(half) / half)
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        if low >= high:
            raise UserError(f"low_freq_factor = {low} in the configuration; give less than high_freq_factor = {high}")
        share = np.clip((turns / (2 * np.pi) - low) / (high - low), 0.0, 1.0)
    return values["rope_theta"], share + (1 - share) / values.get("factor", 1.0)


def _positive(name: str, value: Any) -> float:
    least, most = 1 / _MAX_NUMBER, _MAX_NUMBER
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise UserError(f"{name} = {value!r} in the configuration; give a positive number, {least:g} to {most:g}")
    return float(value)


def _require_usual(said: Mapping[str, Any]) -> None:
    """Refuse models whose logits are others than their projections give."""
    usual = {
        "position_embedding_type": "absolute", "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
        "qk_layernorm": False,
    }  # fmt: skip
    for name, value in usual.items():
        if said.get(name) not in (None, value):
            raise UserError(f"{name} = {said[name]!r} in the configuration; only models with {value!r} can be read")
