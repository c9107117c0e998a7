"""Weights and configuration of GGUF files, read by the library ``gguf``.

Matrices are made of their quantised numbers when they are used.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from simstudy.errors import UserError
from simstudy.transformers.conventions import sizes_of

MAX_STEPS, MAX_TEXTS = 1 << 17, 1 << 20
"""Most numbers and names in a header, lists apart, and texts in a list: twenty thousand tensors, a million tokens."""
_LENGTH, _LIST_HEAD = struct.Struct("<Q"), 12
_ENTRIES = {
    "block_count": "num_hidden_layers", "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
}  # fmt: skip
_FAMILIES = ("llama", "qwen2", "qwen3")
_SIDE_BY_SIDE = ("llama",)
"""Families whose files have the dimensions of a rotary pair side by side; elsewhere, as here, they are half apart."""


class Quantised(dict[str, Any]):
    """Arrays by name, each made when it is used; ``config`` is as of a config.json."""

    config: dict[str, Any]
    fields: dict[str, Any]

    @property
    def vocabulary(self) -> dict[str, int]:
        """Numbers of tokens."""
        tokens = _texts(self.fields["tokenizer.ggml.tokens"].parts[-1])
        return {str(text, "utf-8"): number for number, text in enumerate(tokens)}


def _texts(content: Any, count: int = MAX_TEXTS) -> Iterator[memoryview]:
    """Texts of a list, each after its length: so many, if there are."""
    left, at = memoryview(content), 0
    for _ in range(count):
        if at == len(left):
            return
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(left, at)[0]
        yield left[begin:at]


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
    reader = _reader(file)

    def said(name: str) -> Any:
        return reader.fields[name].contents() if name in reader.fields else None

    if (family := said("general.architecture")) not in _FAMILIES:
        raise UserError(f"general.architecture = {family!r}; heads are read of {', '.join(_FAMILIES)}")
    config = {name: said(f"{family}.{entry}") for entry, name in _ENTRIES.items()}
    config |= {"model_type": family, "rope_scaling": None}
    if (kind := said(f"{family}.rope.scaling.type")) not in (None, "none"):
        config["rope_scaling"] = {"rope_type": kind, "factor": said(f"{family}.rope.scaling.factor")}
    sizes, turned = sizes_of(config), said(f"{family}.rope.dimension_count")
    config["partial_rotary_factor"] = 1.0 if turned is None else turned / sizes.head_dim
    n_heads = {"attn_q": sizes.n_heads, "attn_k": sizes.n_key_heads} if family in _SIDE_BY_SIDE else {}
    found = Quantised(
        {each.name: _Stored(each, n_heads.get(f".{each.name}".split(".")[-2], 0)) for each in reader.tensors}
    )
    found.config, found.fields = config, reader.fields
    return found


def _reader(file: BinaryIO) -> Any:
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
                if count > MAX_TEXTS:
                    raise ValueError(f"a list of {count} texts; {MAX_TEXTS} are the most")
                length = sum(_LENGTH.size + len(text) for text in _texts(self.data[start:], count))
            else:
                length = count * np.dtype(self.gguf_scalar_to_np[gguf.GGUFValueType(kind)]).itemsize
            part = self._get(start, np.uint8, length)
            return _LIST_HEAD + length, [part], [0], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8]

    return Sparing(file)  # type: ignore[arg-type]
