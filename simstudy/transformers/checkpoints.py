"""Weights of transformers as files hold them, names and arrays, without torch.

A checkpoint of PyTorch is a pickle, and a pickle can run any code of its author's.  Here it can name a few things that
make tensors; a file that names another is refused before that is looked up.
"""

import functools
import io
import json
import math
import pickle
import pickletools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from simstudy.design.files import open_archive, open_regular, read_array, read_arrays, read_member
from simstudy.errors import UserError
from simstudy.transformers.graphs import TYPES, as_numbers, mapped, read_graph
from simstudy.transformers.quantised import read_quantised

Weights = dict[str, np.ndarray]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = dict(zip(
    ("DoubleStorage", "FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "IntStorage", "ShortStorage",
     "CharStorage", "ByteStorage", "BoolStorage"), TYPES, strict=True,
))  # fmt: skip
MAX_BYTES = 1 << 40
"""Largest file that is opened: the weights of any model."""
MAX_HEADER_BYTES = 1 << 22
"""Largest header of safetensors, of tens of thousands of arrays: JSON takes thirty times as much in memory."""
MAX_PICKLE_BYTES, MAX_STEPS = 1 << 24, 1 << 19
"""Most bytes and steps of a pickle: 15 000 tensors."""
MAX_DIMENSIONS, MAX_NAME = 32, 256
_STEPS = (
    "PROTO", "STOP", "MARK", "GLOBAL", "BINPERSID", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST",
    "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "NONE",
    "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "BINSTRING",
    "SHORT_BINSTRING", "REDUCE", "BUILD",
)  # fmt: skip
"""Steps that pickles of PyTorch take."""


def read_weights(path: str | Path, alone: str = "an array without a name", is_part: bool = False) -> Weights:
    """Read arrays by name of safetensors or their index, a checkpoint of PyTorch, GGUF, ONNX, or NumPy's.

    The one array of an .npy file is called ``alone``.  Numbers of bfloat16 become float32.  Safetensors, GGUF and ONNX
    are read when they are used.  UserError if a file is damaged, or asks for more than to hold numbers.
    """
    path = Path(path)
    try:
        with open_regular(path, MAX_BYTES) as file:
            return _read(file, path, alone, is_part)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give the path of a file") from None
    except Exception as error:  # a damaged pickle, archive or header fails in any way
        said = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = "save numbers alone, or fetch it again"
        raise UserError(f"{path}: damaged, or no weights ({said}); {remedy}") from None


def _read(file: BinaryIO, path: Path, alone: str, is_part: bool) -> Weights:
    start = file.read(9)
    file.seek(0)
    if start[:1] == b"{" and b"\0" not in start:
        if is_part:  # indices of indices could go on for ever
            raise UserError("an index that an index names; give the index of .safetensors files with weights")
        return _read_parts(path, file.read(MAX_HEADER_BYTES + 1))
    if start.startswith(b"\x93NUMPY"):
        return {alone: read_array(file, len(mapped(file)))}
    if start[8:9] == b"{":
        return _read_safetensors(file)
    beside = functools.cache(functools.partial(_beside, path))
    readers: dict[bytes, Callable[[BinaryIO], Weights]] = {
        b"PK": _read_archive, b"\x80": _read_legacy, b"GGUF": read_quantised,
        b"\x08": lambda file: read_graph(file, beside),
    }  # fmt: skip
    for first, reader in readers.items():
        if start.startswith(first):
            return reader(file)
    raise UserError("neither safetensors, nor a checkpoint of PyTorch, nor GGUF, ONNX or NumPy's; give one of these")


def _read_parts(path: Path, index: bytes) -> Weights:
    """Read the parts of safetensors that an index (``model.safetensors.index.json``) beside them names."""
    if len(index) > MAX_HEADER_BYTES:
        raise ValueError(f"an index of more than {MAX_HEADER_BYTES} bytes")
    parts = sorted(set(json.loads(index)["weight_map"].values()))
    if wrong := [part for part in parts if Path(part).name != part or not part.endswith(".safetensors")]:
        raise UserError(f"names {wrong[0]!r}; give the index of .safetensors files that lie beside it")
    return {name: array for part in parts for name, array in read_weights(path.with_name(part), is_part=True).items()}


def _read_safetensors(file: BinaryIO) -> Weights:
    # The library of this name reads no bfloat16 unless torch is there.
    whole = memoryview(mapped(file))
    start = 8 + int.from_bytes(whole[:8], "little")
    if start > min(8 + MAX_HEADER_BYTES, len(whole)):
        raise ValueError(f"a header of {start - 8} bytes; the file and {MAX_HEADER_BYTES} are the most")
    header = json.loads(bytes(whole[8:start]), object_pairs_hook=_named_once)
    header.pop("__metadata__", None)
    arrays, done = {}, start
    for name, entry in sorted(header.items(), key=lambda each: each[1]["data_offsets"]):
        if (kind := entry["dtype"]) not in TYPES:
            raise UserError(f"{name} is of type {kind}; save one of {', '.join(TYPES)}")
        (begin, end), shape = _counts(entry["data_offsets"]), _counts(entry["shape"])
        own = slice(start + begin, start + end)
        if not done <= own.start <= own.stop <= len(whole) or end - begin != math.prod(shape) * TYPES[kind].itemsize:
            raise ValueError(f"{name} lies beyond the file or in another array, or has another size")
        arrays[name], done = as_numbers(whole[own], kind).reshape(shape), own.stop
    return arrays


def _beside(path: Path, name: str) -> memoryview:
    """Return the content of a plain file in the same folder; a link could lead out of it."""
    if Path(name).name != name or path.with_name(name).is_symlink():
        raise UserError(f"its numbers are in {name!r}; give a model whose files lie in one folder, none of them a link")
    try:
        with open_regular(path.with_name(name), MAX_BYTES) as file:
            return memoryview(mapped(file))
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
            found = _unpickled(pickled)
        return _arrays(_tensors(found), lambda storage: read_member(archive, f"{folder}data/{storage.key}"))


def _read_legacy(file: BinaryIO) -> Weights:
    content = mapped(file)
    if _unpickled(content) != _LEGACY_MAGIC:
        raise UserError("a pickle that is no checkpoint of PyTorch; give weights")
    for _ in ("version of the protocol", "sizes of C types"):
        _unpickled(content)
    found = _tensors(_unpickled(content))
    kinds = {tensor.storage.key: tensor.storage.kind for tensor in found.values()}
    contents = {}
    for key in map(_key, _unpickled(content)):
        n_bytes = int.from_bytes(content.read(8), "little") * TYPES[kinds[key]].itemsize
        if n_bytes > len(content) - content.tell() or key in contents:
            raise ValueError(f"storage {key} goes beyond the file, or is there twice")
        contents[key] = content.read(n_bytes)
    return _arrays(found, lambda storage: contents[storage.key])


class _Storage(NamedTuple):
    kind: str
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


def _rebuild_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, _: Any, hooks: Any, notes: Any = None
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor without a storage")
    return _Tensor(storage, _counts([offset])[0], _counts(shape), _counts(strides))


_Unpickler: Any = vars(pickle)["_Unpickler"]  # the one in Python: its steps can be told


class _TensorPickle(_Unpickler):
    """Reads a pickle that holds tensors by name, and nothing else, in steps that each take as long as the last."""

    # Each takes so many arguments: of a dictionary or a shape, large ones could be copied without end.
    _KNOWN: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("collections", "OrderedDict"): lambda: {},
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): lambda tensor, _, hooks: tensor,
        **{("torch", name): name for name in _STORAGES},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._KNOWN:
            raise UserError(
                f"asks for {f'{module}.{name}'[:MAX_NAME]}, which holds no numbers and may run code: refused; "
                "save the weights alone, best as safetensors"
            )
        return self._KNOWN[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key = pid[:3]
        return _Storage(_STORAGES[_key(kind)], _key(key))

    def load_build(self) -> None:
        self.stack.pop()  # notes of PyTorch beside a dictionary

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self.stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    dispatch: dict[int, Any] = {  # noqa: RUF012
        **_Unpickler.dispatch, pickle.BUILD[0]: load_build, pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }  # fmt: skip


def _unpickled(file: Any) -> Any:
    """Return what a pickle holds, after a look at all of its steps."""
    begin = file.tell()
    # A longer one ends in an error, whatever one of its steps would read.
    steps = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    for count, (step, _, _) in enumerate(pickletools.genops(steps)):
        if step.name not in _STEPS:
            raise ValueError(f"a step {step.name}")
        if count == MAX_STEPS:
            raise UserError(f"its pickle takes more than {count} steps; save the weights alone, best as safetensors")
    steps.seek(0)
    found = _TensorPickle(steps).load()
    file.seek(begin + steps.tell())
    return found


def _tensors(found: Any) -> dict[str, _Tensor]:
    """Tensors by name, wherever a training loop put them ("state_dict", "model")."""
    for name in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict):
        raise UserError(f"holds a {type(found).__name__}; save a state_dict")
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, _Tensor)}


def _arrays(tensors: dict[str, _Tensor], content: Callable[[_Storage], bytes]) -> Weights:
    flat_of = functools.cache(lambda storage: as_numbers(content(storage), storage.kind))
    arrays = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        flat = flat_of(storage)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if all(shape) and max(last + 1, math.prod(shape)) > len(flat):
            raise ValueError(f"{name} lies beyond its storage")
        steps = [stride * flat.itemsize for stride in strides]
        arrays[name] = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
    return arrays
