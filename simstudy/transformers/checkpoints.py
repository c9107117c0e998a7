"""Weights of transformers as files hold them, names and arrays, without torch.

A checkpoint of PyTorch is a pickle, and a pickle can run any code of its author's.  Here it can name a few things that
make tensors; a file that names another is refused before that is looked up.
"""

import collections
import functools
import io
import json
import math
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from simstudy.design.files import open_archive, open_regular, read_array, read_arrays, read_member
from simstudy.errors import UserError
from simstudy.transformers.graphs import mapped, read_graph, widened
from simstudy.transformers.quantised import read_quantised

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
MAX_BYTES = 1 << 40
"""Largest file that is opened: the weights of any model."""
MAX_HEADER_BYTES = 1 << 22
"""Largest header of safetensors, of tens of thousands of arrays: JSON takes thirty times as much in memory."""
MAX_PICKLE_BYTES, MAX_STEPS = 1 << 24, 1 << 20
"""Most bytes of a pickle, and times that it is read from: 15 000 tensors."""
MAX_DIMENSIONS, MAX_ARGUMENTS, MAX_NAME_BYTES = 32, 8, 256
_STEPS = (
    "PROTO", "STOP", "MARK", "GLOBAL", "BINPERSID", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST",
    "APPEND", "APPENDS", "EMPTY_DICT", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE",
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "BINSTRING", "SHORT_BINSTRING",
)  # fmt: skip
"""Operations of a PyTorch pickle, except those that `_TensorPickle` handles itself."""


def read_weights(path: str | Path, alone: str = "an array without a name", is_part: bool = False) -> Weights:
    """Read arrays by name of safetensors or their index, a checkpoint of PyTorch, GGUF, ONNX, or NumPy's.

    The one array of an .npy file is called ``alone``.  Numbers of bfloat16 become float32.  Safetensors, GGUF and ONNX
    are read when they are used.  UserError if a file is damaged, or asks for more than to hold numbers.
    """
    path = Path(path)
    try:
        with open_regular(path, MAX_BYTES) as file:
            start = file.read(9)
            file.seek(0)
            if start[:1] == b"{" and b"\0" not in start:
                if is_part:  # indices of indices could go on for ever
                    raise UserError("an index that an index names; give the index of .safetensors files with weights")
                return _read_parts(path, file.read(MAX_HEADER_BYTES + 1))
            return _reader(start, path, alone)(file)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give the path of a file") from None
    except Exception as error:  # a damaged pickle, archive or header fails in any way
        said = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = "save numbers alone, or fetch it again"
        raise UserError(f"{path}: damaged, or no weights ({said}); {remedy}") from None


def _reader(start: bytes, path: Path, alone: str) -> Callable[[BinaryIO], Weights]:
    if start.startswith(b"\x93NUMPY"):
        return lambda file: {alone: read_array(file, _size(file))}
    if start[8:9] == b"{":
        return _read_safetensors
    if start[:2] == b"PK":
        return _read_archive
    if start[:1] == b"\x80":
        return _read_legacy
    if start[:4] == b"GGUF":
        return read_quantised
    if start[:1] == b"\x08":
        return lambda file: read_graph(file, functools.cache(functools.partial(_beside, path)))
    raise UserError("neither safetensors, nor a checkpoint of PyTorch, nor GGUF, ONNX or NumPy's; give one of these")


def _read_parts(path: Path, index: bytes) -> Weights:
    """Read the parts of safetensors that an index (``model.safetensors.index.json``) beside them names."""
    if len(index) > MAX_HEADER_BYTES:
        raise ValueError(f"an index of more than {MAX_HEADER_BYTES} bytes")
    parts = sorted(set(json.loads(index)["weight_map"].values()))
    if wrong := [part for part in parts if Path(part).name != part or not part.endswith(".safetensors")]:
        raise UserError(f"names {wrong[0]!r}; give the index of .safetensors files that lie beside it")
    return {name: array for part in parts for name, array in read_weights(path.with_name(part), is_part=True).items()}


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _read_safetensors(file: BinaryIO) -> Weights:
    # The library of this name reads no bfloat16 unless torch is there.
    length = int.from_bytes(file.read(8), "little")
    if length > min(MAX_HEADER_BYTES, _size(file) - 8):
        raise ValueError(f"a header of {length} bytes; the file and {MAX_HEADER_BYTES} are the most")
    header = json.loads(file.read(length), object_pairs_hook=_named_once)
    header.pop("__metadata__", None)
    content = np.memmap(file, np.uint8, "r", offset=8 + length)
    arrays, done = {}, 0
    for name, entry in sorted(header.items(), key=lambda each: each[1]["data_offsets"]):
        if entry["dtype"] not in _SAFETENSORS_TYPES:
            raise UserError(f"{name} is of type {entry['dtype']}; save one of {', '.join(_SAFETENSORS_TYPES)}")
        (begin, end), shape = _counts(entry["data_offsets"]), _counts(entry["shape"])
        kind = np.dtype(_SAFETENSORS_TYPES[entry["dtype"]])
        if not done <= begin <= end <= len(content) or end - begin != math.prod(shape) * kind.itemsize:
            raise ValueError(f"{name} lies beyond the file or in another array, or has another size")
        arrays[name] = _number(entry["dtype"], content[begin:end].view(kind).reshape(shape))
        done = end
    return arrays


def _beside(path: Path, name: str) -> memoryview:
    """Return the content of a plain file in the same folder; a link could lead out of it."""
    if Path(name).name != name or path.with_name(name).is_symlink():
        raise UserError(f"its numbers are in {name!r}; give a model whose files lie in one folder, none of them a link")
    try:
        with open_regular(path.with_name(name), MAX_BYTES) as file:
            return mapped(file)
    except UserError as error:
        raise UserError(f"its numbers are in {name!r}, which {error}") from None


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _counts(numbers: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes, offsets or strides: few whole numbers from 0 on."""
    if len(numbers) > MAX_DIMENSIONS or not all(type(each) is int and 0 <= each < 1 << 48 for each in numbers):
        raise ValueError("a shape, offset or stride that none can be: it lies beyond any storage")
    return (*numbers,)


def _read_archive(file: BinaryIO) -> Weights:
    with open_archive(file, MAX_BYTES) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if not pickles:
            return read_arrays(file, MAX_BYTES)
        folder = pickles[0].removesuffix("data.pkl")
        with archive.open(pickles[0]) as pickled:
            found = _TensorPickle(io.BytesIO(pickled.read(MAX_PICKLE_BYTES))).load()
        return _tensors(found, lambda storage: read_member(archive, f"{folder}data/{storage.key}"))


def _read_legacy(file: BinaryIO) -> Weights:
    magic = _TensorPickle(file).load()
    if magic != _LEGACY_MAGIC:
        raise UserError("a pickle that is no checkpoint of PyTorch; give weights")
    for _ in ("version of the protocol", "sizes of C types"):
        _TensorPickle(file).load()
    found = _TensorPickle(file).load()
    types = {tensor.storage.key: tensor.storage.type for tensor in _listed(found).values()}
    contents = {}
    for key in map(_key, _TensorPickle(file).load()):
        n_bytes = int.from_bytes(file.read(8), "little") * np.dtype(_STORAGE_TYPES[types[key]]).itemsize
        if n_bytes > _size(file) - file.tell() or key in contents:
            raise ValueError(f"storage {key} goes beyond the file, or is there twice")
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


def _key(key: Any) -> str:
    """Return the name of a storage: a text or number, as others may take for ever to be written out."""
    if type(key) not in (str, int):
        raise ValueError(f"a {type(key).__name__} for a name")
    return str(key)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor without a storage")
    return _Tensor(storage, _counts([offset])[0], _counts(shape), _counts(strides))


_Unpickler: Any = vars(pickle)["_Unpickler"]  # the one in Python: its memo takes what it holds, and it can be told


class _Sparing:
    """A file from which a pickle may read so much and so often."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._bytes, self._steps = file, MAX_PICKLE_BYTES, MAX_STEPS

    def read(self, size: int) -> bytes:
        self._steps -= 1
        if self._steps < 0 or size > self._bytes:
            raise UserError(
                f"its pickle takes more than {MAX_STEPS} steps or {MAX_PICKLE_BYTES} bytes; "
                "save the weights alone, best as safetensors"
            )
        self._bytes -= size
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline(MAX_NAME_BYTES)
        self.read(0)
        return line


class _TensorPickle(_Unpickler):
    """Reads a pickle that holds tensors by name, and nothing else, in steps that each take as long as the last."""

    _KNOWN: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    }
    dispatch: dict[int, Any] = {  # noqa: RUF012
        code[0]: _Unpickler.dispatch[code[0]] for code in (getattr(pickle, name) for name in _STEPS)
    }

    def __init__(self, file: Any) -> None:
        super().__init__(_Sparing(file))

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
        _, kind, key = pid[:3]
        if _key(kind) not in _STORAGE_TYPES:
            raise ValueError(f"{kind} is no storage")
        return _Storage(kind, _key(key))

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        # Of a dictionary or a shape, large ones could be copied without end.
        if len(arguments) > (0 if function is collections.OrderedDict else MAX_ARGUMENTS):
            raise ValueError("a function of too much")
        self.stack.append(function(*arguments))

    def load_build(self) -> None:
        self.stack.pop()  # notes of PyTorch beside a dictionary

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self.stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    dispatch |= {
        pickle.REDUCE[0]: load_reduce, pickle.BUILD[0]: load_build, pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }  # fmt: skip


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
        if all(shape) and max(last + 1, math.prod(shape)) > len(flat):
            raise ValueError(f"{name} lies beyond its storage")
        steps = [stride * flat.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
        arrays[name] = _number(storage.type, view)
    return arrays


def _number(kind: str, array: np.ndarray) -> np.ndarray:
    return widened(array) if kind in _BRAIN_FLOATS else array
