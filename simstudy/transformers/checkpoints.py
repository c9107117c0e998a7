"""Weights of transformers as files hold them, names and arrays, without torch.

A checkpoint of PyTorch is a pickle, and a pickle can run any code of its author's.  Here it can name a few things that
make tensors; a file that names another is refused before that is looked up.
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from simstudy.errors import UserError

Weights = dict[str, np.ndarray]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_SAFETENSORS_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}  # fmt: skip
_STORAGE_TYPES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2", "LongStorage": "<i8",
    "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip
_BRAIN_FLOATS = ("BF16", "BFloat16Storage")


def read_weights(path: str | Path) -> Weights:
    """Read the arrays of a file: safetensors, a checkpoint of PyTorch, or NumPy's.

    Parameters
    ----------
    path
        Of the file; what it is, its content tells.

    Returns
    -------
    dict
        Arrays by name, "states" if there is but one (.npy); bfloat16, which NumPy lacks, as float32.  Those of
        safetensors are read when they are used.

    Raises
    ------
    UserError
        If it cannot be read, is of no such format or damaged, or asks for more than to hold numbers.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(9)
            file.seek(0)
            return _reader(start)(file, path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give the path of a file") from None
    except Exception as error:  # a damaged pickle, archive or header fails in any way
        raise UserError(
            f"{path}: damaged, or no weights ({type(error).__name__}: {error}); save numbers alone, or fetch it again"
        ) from None


def _reader(start: bytes) -> Callable[[BinaryIO, Path], Weights]:
    if start.startswith(b"\x93NUMPY"):
        return _read_array
    if start[8:9] == b"{":
        return _read_safetensors
    if start[:2] == b"PK":
        return _read_archive
    if start[:1] == b"\x80":
        return _read_legacy
    raise UserError("neither safetensors, nor a checkpoint of PyTorch, nor NumPy's; give one of these")


def _read_array(file: BinaryIO, _: Path) -> Weights:
    return {"states": np.load(file, allow_pickle=False)}


def _read_safetensors(file: BinaryIO, path: Path) -> Weights:
    # The library of this name reads no bfloat16 unless torch is there.
    length = int.from_bytes(file.read(8), "little")
    if length > path.stat().st_size:
        raise ValueError("the header is longer than the file")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    content = np.memmap(path, np.uint8, "r", offset=8 + length)
    arrays = {}
    for name, entry in header.items():
        if entry["dtype"] not in _SAFETENSORS_TYPES:
            raise UserError(f"{name} is of type {entry['dtype']}; save one of {', '.join(_SAFETENSORS_TYPES)}")
        begin, end = entry["data_offsets"]
        flat = content[begin:end].view(_SAFETENSORS_TYPES[entry["dtype"]])
        arrays[name] = _number(entry["dtype"], flat.reshape(entry["shape"]))
    return arrays


def _read_archive(file: BinaryIO, path: Path) -> Weights:
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if not pickles:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        folder = pickles[0].removesuffix("data.pkl")
        found = _TensorPickle(io.BytesIO(archive.read(pickles[0]))).load()
        return _tensors(found, lambda storage: archive.read(f"{folder}data/{storage.key}"))


def _read_legacy(file: BinaryIO, path: Path) -> Weights:
    magic = _TensorPickle(file).load()
    if magic != _LEGACY_MAGIC:
        raise UserError("a pickle that is no checkpoint of PyTorch; give weights")
    for _ in ("version of the protocol", "sizes of C types"):
        _TensorPickle(file).load()
    found = _TensorPickle(file).load()
    types = {tensor.storage.key: tensor.storage.type for tensor in _listed(found).values()}
    contents = {}
    for key in _TensorPickle(file).load():
        n_bytes = int.from_bytes(file.read(8), "little") * np.dtype(_STORAGE_TYPES[types[key]]).itemsize
        contents[key] = file.read(n_bytes)
    return _tensors(found, lambda storage: contents[storage.key])


class _Storage(NamedTuple):
    type: str
    key: str


class _Tensor(NamedTuple):
    """Part of a storage, seen with strides; all counted in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


class _TensorPickle(pickle.Unpickler):
    """Reads a pickle that holds tensors by name, and nothing else."""

    _KNOWN: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGE_TYPES:
            return name
        if (module, name) not in self._KNOWN:
            raise UserError(
                f"asks for {module}.{name}, which holds no numbers and may run code: refused; "
                "save the weights alone, best as safetensors"
            )
        return self._KNOWN[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, *_ = pid
        return _Storage(kind, str(key))


def _listed(found: Any) -> dict[str, _Tensor]:
    """Tensors by name, wherever a training loop put them ("state_dict", "model")."""
    for name in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict):
        raise UserError(f"holds a {type(found).__name__}; save a state_dict")
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, _Tensor)}


def _tensors(found: Any, content: Callable[[_Storage], bytes]) -> Weights:
    storages: dict[_Storage, np.ndarray] = {}
    arrays = {}
    for name, (storage, offset, shape, strides) in _listed(found).items():
        if storage not in storages:
            storages[storage] = np.frombuffer(content(storage), _STORAGE_TYPES[storage.type])
        flat = storages[storage]
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if min((offset, *shape, *strides)) < 0 or (all(shape) and last >= len(flat)):
            raise ValueError(f"{name} lies beyond its storage")
        steps = [stride * flat.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
        arrays[name] = _number(storage.type, view)
    return arrays


def _number(kind: str, array: np.ndarray) -> np.ndarray:
    """Bfloat16 is the upper half of a float32."""
    return (array.astype("<u4") << 16).view("<f4") if kind in _BRAIN_FLOATS else array
