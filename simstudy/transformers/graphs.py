"""Arrays of ONNX files, under the names that they have in modules of torch.

Exporters turn the matrix of a linear map and call it by a number.  Its module is told by the scopes that newer ones
note beside a node, by the path that older ones name it by, or by the bias that is added to the product.

Messages are read here, in steps that are counted: of 10 MB of empty nodes, the library ``onnx`` makes 1 GB of objects.
Their fields are called by the numbers of ``onnx.proto``.
"""

import mmap
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from simstudy.errors import UserError

MAX_STEPS = 1 << 20
"""Most whole numbers that are read, lengths among them: a hundred for each of ten thousand nodes."""
TYPES = {name: np.dtype(kind) for name, kind in {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}.items()}  # fmt: skip
"""As safetensors calls them."""
_TYPES = {1: "F32", 10: "F16", 11: "F64", 16: "BF16"}
"""Of numbers that can be weights."""
_FIXED = {1: 8, 5: 4}
"""Bytes of a field by its wire type."""
_QUANTISED = ("MatMulInteger", "DequantizeLinear", "QLinearMatMul", "MatMulNBits", "DynamicQuantizeMatMul")
_Fields = dict[int, list[Any]]


class _Messages:
    """Reads messages of Protocol Buffers, in so many steps altogether."""

    def __init__(self) -> None:
        self._left = MAX_STEPS
        self._taken: dict[str, int] = defaultdict(int)

    def number(self, content: memoryview, at: int) -> tuple[int, int]:
        """The whole number that begins there, and where it ends."""
        self._left -= 1
        if self._left < 0:
            raise UserError(f"a graph of more than {MAX_STEPS} numbers and texts; give the weights as safetensors")
        value = 0
        for shift in range(0, 70, 7):
            value |= (content[at] & 127) << shift
            at += 1
            if content[at - 1] < 128:
                return value, at
        raise ValueError("a whole number of more than 64 bits")

    def fields(self, content: memoryview) -> _Fields:
        """Values of a message by field: whole numbers, or bytes."""
        found: _Fields = defaultdict(list)
        at = 0
        while at < len(content):
            key, at = self.number(content, at)
            size, at = self.number(content, at) if key & 7 in (0, 2) else (_FIXED[key & 7], at)
            found[key >> 3].append(content[at : at + size] if key & 7 else size)
            at += size if key & 7 else 0
        if at > len(content):
            raise ValueError("a field beyond its message")
        return found

    def entries(self, messages: list[memoryview]) -> dict[str, str]:
        """Texts by name."""
        return {_text(each, 1): _text(each, 2) for each in map(self.fields, messages)}

    def array(self, tensor: _Fields, beside: Callable[[str], memoryview]) -> np.ndarray:
        """The array of a tensor."""
        content = [*tensor[4], *tensor[9], b""][0]
        if tensor[13]:
            place = self.entries(tensor[13])
            whole = beside(place["location"])
            content = whole[int(place.get("offset", 0)) :][: int(place.get("length", len(whole)))]
            self._taken[place["location"]] += len(content)
            if self._taken[place["location"]] > len(whole):  # copies could be made of one place without end
                raise ValueError("arrays that overlap")
        return as_numbers(content, _TYPES[tensor[2][-1]]).reshape(tensor[1])

    def module(self, node: _Fields) -> str:
        """The module that a node belongs to."""
        scopes = re.findall("'([^']*)'", self.entries(node[9]).get("pkg.torch.onnx.name_scopes", ""))
        return scopes[-2] if len(scopes) > 1 else ".".join(_text(node, 3).strip("/").split("/")[:-1])

    def turns(self, node: _Fields) -> bool:
        """Whether a product is with the second matrix turned already."""
        return any(_text(each, 1) == "transB" and each[3] == [1] for each in map(self.fields, node[5]))


def _text(message: _Fields, field: int) -> str:
    return str(message[field][-1], "utf-8") if message[field] else ""


def as_numbers(content: memoryview | bytes, kind: str) -> np.ndarray:
    """Numbers of one of `TYPES`; those of bfloat16, which are upper halves of a float32, as such."""
    array = np.frombuffer(content, TYPES[kind])
    return (array.astype("<u4") << 16).view("<f4") if kind == "BF16" else array


def mapped(file: BinaryIO) -> mmap.mmap:
    """The content of a file, read when it is used."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_graph(file: BinaryIO, beside: Callable[[str], memoryview]) -> dict[str, np.ndarray]:
    """Read an ONNX file; ``beside`` gives the content of another file in its folder."""
    read = _Messages()
    graph = read.fields(read.fields(memoryview(mapped(file)))[7][-1])
    tensors = [each for each in map(read.fields, graph[5]) if each[2][-1] in _TYPES and each[4] + each[9] + each[13]]
    found = {_text(tensor, 8): read.array(tensor, beside) for tensor in tensors}
    products: dict[str, tuple[int, np.ndarray]] = {}
    by_module: Any = defaultdict(dict)
    by_bias: Any = defaultdict(dict)
    for node in map(read.fields, graph[1]):
        kind, inputs, outputs = _text(node, 4), *([str(name, "utf-8") for name in node[k]] for k in (1, 2))
        if kind in _QUANTISED:
            raise UserError(f"its matrices are quantised ({kind}); give the model with matrices of 16 or 32 bits")
        if kind == "Identity" and inputs[0] in found:  # of equal arrays, exporters keep one
            found[outputs[0]] = found[inputs[0]]
        if kind in ("MatMul", "Gemm") and inputs[1] in found and not inputs[1].endswith("weight"):
            matrix = found[inputs[1]]
            products[outputs[0]] = id(matrix), matrix if read.turns(node) else matrix.T
            by_module[f"{read.module(node)}.weight"].update([products[outputs[0]]])
        for product, *bias in {"Add": (inputs, inputs[::-1]), "Gemm": ([*outputs, *inputs[2:]],)}.get(kind, ()):
            if product in products and bias and bias[0] in found and bias[0].endswith("bias"):
                by_bias[bias[0].removesuffix("bias") + "weight"].update([products[product]])
    alone = (each for named in (by_bias, by_module) for each in named.items() if len(each[1]) == 1)
    return found | {name: matrix for name, given in alone for matrix in given.values()}
