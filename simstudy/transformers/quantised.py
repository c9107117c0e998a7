"""Weights and configuration of GGUF files, read by the library ``gguf``.

Names become those of Llama's checkpoints.  Matrices are made of their quantised numbers when they are used.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from simstudy.errors import UserError
from simstudy.transformers.conventions import sizes_of

MAX_STEPS, MAX_TEXTS = 1 << 17, 1 << 20
"""Most numbers and names in a header, lists apart, and texts in a list: twenty thousand tensors, a million tokens."""
_LENGTH, _LIST_HEAD = struct.Struct("<Q"), 12
_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
_ENTRIES = {
    "block_count": "num_hidden_layers", "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
}  # fmt: skip
_FAMILIES = ("llama", "qwen2", "qwen3")
_SIDE_BY_SIDE = ("llama",)
"""Families whose files have the dimensions of a rotary pair side by side; elsewhere, as here, they are half apart."""
_PLACE = re.compile(r"blk\.(\d+)\.(\w+)")


def _texts(content: Any, count: int | None = None) -> Iterator[memoryview]:
    """Texts of a list, each after its length; all that there are, if not so many."""
    left, at = memoryview(content), 0
    if count is not None and count > min(MAX_TEXTS, len(left)):
        raise ValueError(f"a list of {count} texts; the file and {MAX_TEXTS} are the most")
    while at < len(left) if count is None else count > 0:
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(left, at)[0]
        count = None if count is None else count - 1
        yield left[begin:at]


class Quantised(dict[str, Any]):
    """Arrays by name, each made when it is used; ``config`` is as of a config.json."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self.config = self._config()

    def said(self, name: str) -> Any:
        """What the file says under a name, or None."""
        return self._fields[name].contents() if name in self._fields else None

    @property
    def vocabulary(self) -> list[str]:
        """Tokens, in the order of their numbers."""
        return [str(text, "utf-8") for text in _texts(self._fields["tokenizer.ggml.tokens"].parts[-1])]

    def _config(self) -> dict[str, Any]:
        family = self.said("general.architecture")
        if family not in _FAMILIES:
            raise UserError(f"general.architecture = {family!r}; heads are read of {', '.join(_FAMILIES)}")
        config = {name: self.said(f"{family}.{entry}") for entry, name in _ENTRIES.items()}
        config |= {"model_type": family, "rope_scaling": None}
        if (kind := self.said(f"{family}.rope.scaling.type")) not in (None, "none"):
            config["rope_scaling"] = {"rope_type": kind, "factor": self.said(f"{family}.rope.scaling.factor")}
        head_dim, turned = sizes_of(config).head_dim, self.said(f"{family}.rope.dimension_count")
        return config | {"partial_rotary_factor": 1.0 if turned is None else turned / head_dim}


class _Stored:
    """A tensor of a file, with its rotary pairs side by side in each of so many heads (0: nowhere)."""

    def __init__(self, tensor: Any, n_heads: int) -> None:
        self._tensor, self._n_heads = tensor, n_heads

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        from gguf import dequantize

        try:
            found = dequantize(self._tensor.data, self._tensor.tensor_type).astype(np.float32)
        except NotImplementedError as error:
            raise UserError(f"{self._tensor.name}: {error}; give another quantisation") from None
        if self._n_heads:
            found = found.reshape(self._n_heads, -1, 2, *found.shape[1:]).swapaxes(1, 2).reshape(found.shape)
        return found if dtype is None else found.astype(dtype)


def read_quantised(file: BinaryIO) -> Quantised:
    """Read a GGUF file; UserError if the library is missing, or the model is of another family than those known."""
    try:
        import gguf
    except ModuleNotFoundError:
        raise UserError("GGUF needs the library gguf; pip install 'simstudy[gguf]'") from None

    class Sparing(gguf.GGUFReader):
        """Stops where the file ends; a list, of which the library would make an object for each entry, stays bytes."""

        steps = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *more: Any, **named: Any) -> np.ndarray:
            self.steps += 1
            found: np.ndarray = super()._get(offset, dtype, count, *more, **named)
            if len(found) < count or self.steps > MAX_STEPS:
                raise ValueError(f"a header beyond the file, or of more than {MAX_STEPS} entries")
            return found

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != gguf.GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, count = (int(self._get(orig_offs + at, size)[0]) for at, size in ((0, np.uint32), (4, np.uint64)))
            start = orig_offs + _LIST_HEAD
            if kind == gguf.GGUFValueType.STRING:
                length = sum(_LENGTH.size + len(text) for text in _texts(self.data[start:], count))
            else:
                length = count * np.dtype(self.gguf_scalar_to_np[gguf.GGUFValueType(kind)]).itemsize
            part = self._get(start, np.uint8, length)
            return _LIST_HEAD + length, [part], [0], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8]

    reader: Any = Sparing(file)  # type: ignore[arg-type]
    found = Quantised(reader.fields)
    sizes = sizes_of(found.config)
    turned = {"self_attn.q_proj": sizes.n_heads, "self_attn.k_proj": sizes.n_key_heads}
    for tensor in reader.tensors:
        place, _, kind = tensor.name.rpartition(".")
        layer = _PLACE.fullmatch(place)
        name = _NAMES.get(layer[2] if layer else place, place)
        n_heads = turned.get(name, 0) if found.config["model_type"] in _SIDE_BY_SIDE else 0
        found[f"model.layers.{layer[1]}.{name}.{kind}" if layer else f"{name}.{kind}"] = _Stored(tensor, n_heads)
    return found
