"""ONNX files as the exporters of torch write them, but without torch: against the same arrays under their own names.

What these exporters write themselves, ``make verify`` reads.
"""

import numpy as np
import pytest
from layouts import BERT, CONFIG, D, L, by_linear_maps, require_same

import simstudy
from simstudy.errors import UserError
from simstudy.transformers.checkpoints import read_weights

OUTPUT = "encoder.layer.{0}.attention.output.dense"
TYPES = {"float32": 1, "int64": 7, "float16": 10, "float64": 11, "uint16": 16}  # the last stands for bfloat16
GRAPH, NODE, TENSOR = 7, 1, 5


def number(value):
    head, rest = value & 127, value >> 7
    return bytes([head | 128]) + number(rest) if rest else bytes([head])


def message(*fields):
    """Of Protocol Buffers, from numbers of fields and their values."""
    content = b""
    for field, value in fields:
        if isinstance(value, int):
            content += number(field << 3) + number(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            content += number(field << 3 | 2) + number(len(value)) + value
    return content


def texts(field, named):
    return [(field, message((1, name), (2, str(value)))) for name, value in named.items()]


def tensor(name, array, place=None):
    """An array, or where it is in another file."""
    content = [(9, array.tobytes())] if place is None else [*texts(13, place), (14, 1)]
    return TENSOR, message(*((1, size) for size in array.shape), (2, TYPES[array.dtype.name]), (8, name), *content)


def node(kind, inputs, output, name="", scopes="", turned=0):
    notes = texts(9, {"namespace": "x", "pkg.torch.onnx.name_scopes": scopes}) if scopes else []
    attributes = [(5, message((1, "alpha"), (3, 7))), (5, message((1, "transB"), (3, turned)))]
    return NODE, message(*((1, each) for each in inputs), (2, output), (3, name), (4, kind), *attributes, *notes)


def model(*entries):
    return message((1, 10), (2, "pytorch"), (GRAPH, message(*entries)), (8, message((2, 20))))


def bert(arrays, style):
    """As an exporter of torch writes linear maps: by paths, by scopes, or by neither."""
    tensors, nodes = [tensor("val_0", np.arange(3))], [node("Constant", [], "axes")]
    for k, name in enumerate(each.removesuffix(".weight") for each in arrays if each.endswith("weight")):
        path = "/" + name.replace(".", "/").replace("layer/", "layer.") if style == "paths" else "node"
        scopes = f"['', 'encoder', '{name}', 'linear_{k}']" if style == "scopes" else ""
        tensors.append(tensor(f"onnx::MatMul_{k}", np.ascontiguousarray(arrays[f"{name}.weight"].T)))
        nodes.append(node("MatMul", ["x", f"onnx::MatMul_{k}"], f"product_{k}", f"{path}/MatMul", scopes))
        if (bias := arrays.get(f"{name}.bias")) is not None:
            tensors.append(tensor(f"{name}.bias", bias))
            added = [f"{name}.bias", f"product_{k}"][:: 1 if k % 2 else -1]
            nodes.append(node("Add", added, f"sum_{k}", f"{path}/Add", scopes))
    return model(*nodes, *tensors)


@pytest.mark.parametrize("style", ["paths", "scopes", "neither"])
def test_matrices__have_the_names_of_their_modules(style, parts, tmp_path):
    arrays = by_linear_maps(parts, BERT, OUTPUT)
    if style == "neither":
        arrays |= {f"{OUTPUT.format(layer)}.bias": np.full(D, layer, np.float32) for layer in range(L)}
    (tmp_path / "model.onnx").write_bytes(bert(arrays, style))
    require_same(simstudy.read_heads(tmp_path / "model.onnx", {"model_type": "bert", **CONFIG}), parts)


def test_equal_arrays_and_shared_modules__leave_each_matrix_its_name(tmp_path):
    """Of equal arrays exporters keep one: others are its copies, or it is used for all; two of one name have none."""
    arrays = {"m0": np.eye(3, 6), "m1": np.eye(6, 3), "a.bias": np.zeros(6)}
    used = [("m0", "/a/MatMul"), ("m1", "/b/MatMul"), ("m2", "/a/MatMul"), ("m0", "/c/MatMul"), ("m1", "/c/MatMul_1")]
    products = [node("MatMul", ["x", matrix], f"y{k}", name) for k, (matrix, name) in enumerate(used)]
    added = [node("Add", [f"y{k}", "a.bias"], f"sum_{k}") for k in range(2)]
    copied = [node("Identity", ["a.bias"], "b.bias"), node("Identity", ["m0"], "m2")]
    (tmp_path / "model.onnx").write_bytes(model(*copied, *products, *added, *map(tensor, arrays, arrays.values())))
    found = read_weights(tmp_path / "model.onnx")
    for name, wanted in {"a.weight": "m0", "b.weight": "m1", "b.bias": "a.bias"}.items():
        np.testing.assert_array_equal(found[name], arrays[wanted].T)
    assert "c.weight" not in found


def test_gemm__says_whether_its_matrix_is_turned(tmp_path):
    """And a matrix that kept its name is as its module has it: that of GPT-2 maps rows."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = {"m0": 0, "m1": 1, "h.0.attn.c_attn.weight": 0}
    nodes = [node("Gemm", ["x", name, "f.bias"][: 3 - k % 2], f"y{k}", f"/{name}/Gemm", turned=turned)
             for k, (name, turned) in enumerate(names.items())]  # fmt: skip
    arrays = [tensor(name, array) for name in (*names, "f.bias")]
    (tmp_path / "model.onnx").write_bytes(model(*nodes, *arrays))
    found = read_weights(tmp_path / "model.onnx")
    for name, wanted in {"m0": array.T, "f": array.T, "m1": array}.items():
        np.testing.assert_array_equal(found[f"{name}.weight"], wanted)
    np.testing.assert_array_equal(found["h.0.attn.c_attn.weight"], array)


def test_numbers_beside_and_in_a_list__are_read_from_their_place(tmp_path):
    half, brain = np.arange(6, dtype=np.float16).reshape(2, 3), np.array([0x3F80, 0xC000], np.uint16)
    (tmp_path / "model.onnx.data").write_bytes(b"....." + half.tobytes() + brain.tobytes())
    place = {"location": "model.onnx.data", "offset": 5}
    arrays = tensor("half", half, place | {"length": 12}), tensor("brain", brain, place | {"offset": 17})
    listed = TENSOR, message((1, 3), (2, 1), (4, np.arange(3, dtype="<f4").tobytes()), (8, "listed"))
    (tmp_path / "model.onnx").write_bytes(model(*arrays, listed))
    found = read_weights(tmp_path / "model.onnx")
    np.testing.assert_array_equal(found["half"], half)
    np.testing.assert_array_equal(found["listed"], [0, 1, 2])
    np.testing.assert_array_equal(found["brain"], [1.0, -2.0])


@pytest.mark.parametrize(
    "place, said",
    [
        ({"location": "../secret"}, "its numbers are in '../secret'; give a model whose files lie in one folder"),
        ({"location": "link"}, "its numbers are in 'link'; give a model whose files lie in one folder, none .* a link"),
        ({"location": "none"}, "its numbers are in 'none', which cannot be read: No such file"),
        ({"location": ".."}, "its numbers are in '..', which cannot be read: a folder"),
        ({"location": "a.data", "offset": 8}, "cannot reshape"),
        ({"location": "a.data", "length": 12}, "cannot reshape"),
        ({"location": "a.data", "offset": "9" * 5000}, "Exceeds the limit"),
        ({"location": "a.data"}, "arrays that overlap"),
    ],
)
def test_numbers_elsewhere__are_refused(place, said, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(16))
    (tmp_path / "model").mkdir()
    (tmp_path / "model/link").symlink_to(tmp_path / "secret")
    (tmp_path / "model/a.data").write_bytes(bytes(16))
    twice = [tensor(name, np.zeros(4, np.float32), place) for name in "ab"]
    (tmp_path / "model/model.onnx").write_bytes(model(*twice))
    with pytest.raises(UserError, match=rf"^[^\n]*model.onnx: [^\n]*{said}[^\n]*$"):
        read_weights(tmp_path / "model/model.onnx")


def test_quantised_matrices__are_refused_by_name(tmp_path):
    (tmp_path / "model.onnx").write_bytes(model(node("MatMulInteger", ["x", "w"], "y")))
    with pytest.raises(UserError, match=r"its matrices are quantised \(MatMulInteger\); give the model"):
        read_weights(tmp_path / "model.onnx")
