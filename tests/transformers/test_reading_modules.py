"""Modules of torch, models of TransformerLens, and ONNX files as torch writes them, all without torch."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from layouts import BERT, CONFIG, D, H, L, P, by_linear_maps, require_same

import simstudy
from simstudy.errors import UserError
from simstudy.transformers.checkpoints import read_weights


def test_weights_of_torch_and_timm__are_fused(parts):
    arrays = {}
    for layer in range(L):
        matrix, bias = parts["matrices"][:, layer].transpose(0, 2, 1).reshape(-1, D), parts["biases"][:, layer].ravel()
        arrays |= {f"layers.{layer}.self_attn.in_proj_weight": matrix, f"layers.{layer}.self_attn.in_proj_bias": bias,
                   f"blocks.{layer}.attn.qkv.weight": matrix, f"blocks.{layer}.attn.qkv.bias": bias}  # fmt: skip
        for place in (f"layers.{layer}.self_attn.out_proj", f"blocks.{layer}.attn.proj"):
            arrays[f"{place}.weight"] = parts["output"][layer].T
    for kind in ("torch", "timm"):
        require_same(simstudy.read_heads(arrays, {"model_type": kind, **CONFIG}), parts)
    one = {name.removeprefix("layers.0.self_attn."): array for name, array in arrays.items() if "layers.0" in name}
    config = {"model_type": "torch", **CONFIG, "num_hidden_layers": 1}
    assert np.array_equal(simstudy.read_heads(one, config).query[0], simstudy.read_heads(arrays, config).query[0])
    with pytest.raises(UserError, match=r"lack layers\.1"):
        simstudy.read_heads(one, config | {"num_hidden_layers": 2})


class Module:
    """As much of a torch.nn.Module as is asked for: torch itself is no dependency."""

    class Tensor:
        def __init__(self, array):
            self.array = array

        def detach(self):
            return self

        cpu = float = detach

        def numpy(self):
            return self.array

    def __init__(self, arrays, config):
        self.arrays, self.config = arrays, type("Config", (), {"to_dict": lambda _: config})()

    def state_dict(self):
        return {name: self.Tensor(array) for name, array in self.arrays.items()}


class Attention(Module):
    """As much of a torch.nn.MultiheadAttention."""

    def __init__(self, layer, parts):
        matrix, bias = parts["matrices"][:, layer].transpose(0, 2, 1), parts["biases"][:, layer]
        self.in_proj_weight, self.num_heads = matrix.reshape(-1, D), H
        self.arrays = {"in_proj_weight": self.in_proj_weight, "in_proj_bias": bias.ravel(),
                       "out_proj.weight": parts["output"][layer].T}  # fmt: skip


def test_attention_of_torch__is_found_in_any_module(parts):
    layers = {f"layers.{layer}.self_attn": Attention(layer, parts) for layer in range(L)}
    across = {"layers.0.multihead_attn": Attention(0, parts)}

    class Whole(Module):
        modules = None

        def named_modules(self):
            return ({"": self} | layers | across).items()

    whole = Whole({}, None)
    del whole.config
    require_same(simstudy.read_heads(whole), parts)


@pytest.mark.parametrize(
    ("model_type", "names"), [("bert", BERT), ("vit", [f"layers.{{0}}.attention.{name}_proj" for name in "qkvo"])]
)
def test_module__is_read_by_its_own_configuration_and_the_names_of_its_version(model_type, names, parts):
    arrays = by_linear_maps(parts, names)
    require_same(simstudy.read_heads(Module(arrays, {"model_type": model_type, **CONFIG})), parts)


def lens_model(parts, **settings):
    """As much of a model of TransformerLens as is asked for."""
    arrays = {f"blocks.{layer}.attn.b_O": np.zeros(D) for layer in range(L)}
    for (k, name), layer in itertools.product(enumerate("QKV"), range(L)):
        split = parts["matrices"][k, layer].reshape(D, H, P).swapaxes(0, 1)
        arrays |= {f"blocks.{layer}.attn.W_{name}": split, f"blocks.{layer}.attn.b_{name}":
                   parts["biases"][k, layer].reshape(H, P), f"blocks.{layer}.attn.W_O":
                   parts["output"][layer].reshape(H, P, D)}  # fmt: skip
    usual = {"positional_embedding_type": "standard", "attention_dir": "causal", "use_attn_scale": True,
             "attn_scale": -1.0}  # fmt: skip
    model = Module(arrays, None)
    del model.config
    model.cfg = SimpleNamespace(**usual | settings)
    return model


def test_models_of_transformer_lens__are_read_by_its_names(parts):
    require_same(simstudy.read_heads(lens_model(parts)), parts)
    require_same(simstudy.read_heads(lens_model(parts).arrays), parts)
    rotary = {"positional_embedding_type": "rotary", "rotary_base": 50, "rotary_dim": 2}
    heads = simstudy.read_heads(lens_model(parts, **rotary, attn_scale=4.0, attention_dir="bidirectional"))
    assert (heads.rotary_base, heads.rotary_factors.shape, heads.scale, heads.causal) == (50, (L, 1), 0.25, False)
    assert simstudy.read_heads(lens_model(parts).arrays).causal
    for settings, said in (({"use_qk_norm": True}, "use_qk_norm"), ({"attn_scores_soft_cap": 50.0}, "cap = 50.0"),
                           ({"positional_embedding_type": "alibi"}, "'alibi'")):  # fmt: skip
        with pytest.raises(UserError, match=f"cfg says .*{said}"):
            simstudy.read_heads(lens_model(parts, **settings))
    with pytest.raises(UserError, match="give rotary_base, and rotary_dim"):
        simstudy.read_heads({**lens_model(parts).arrays, "blocks.0.attn.rotary_sin": np.ones(1)})


class Tokens(Module.Tensor):
    ndim = property(lambda self: self.array.ndim)

    def swapaxes(self, *axes):
        return Tokens(self.array.swapaxes(*axes))


class Running:
    """A module that adds one to what it is given, and calls hooks first."""

    def __init__(self, **how):
        self.hooks = {}
        vars(self).update(how)

    def register_forward_pre_hook(self, hook, with_kwargs):
        assert with_kwargs
        self.hooks[hook] = hook
        return SimpleNamespace(remove=lambda: self.hooks.pop(hook))

    def __call__(self, *given, **named):
        for hook in self.hooks.values():
            hook(self, given, named)
        return Tokens(next(iter((*given, *named.values()))).array + 1)


@pytest.mark.parametrize("batch_first", [True, False])
def test_states__are_what_enters_attention(batch_first):
    attention = {f"layers.{layer}.self_attn": Running(in_proj_weight=1, batch_first=batch_first) for layer in range(L)}

    def model(tokens, times=1):
        for each in [*attention.values()] * times:
            tokens = each(tokens) if batch_first else each(query=tokens)

    model.named_modules = lambda: attention.items()
    tokens = np.arange(24.0).reshape(2, 3, 4)
    found = simstudy.collect_states(model, Tokens(tokens))
    np.testing.assert_array_equal(found, [(tokens if batch_first else tokens.swapaxes(0, 1)) + k for k in range(L)])
    assert not any(each.hooks for each in attention.values())
    with pytest.raises(UserError, match="attention ran 6 times in 3 layers"):
        simstudy.collect_states(model, Tokens(tokens), times=2)
    attention.clear()
    with pytest.raises(UserError, match=r"no torch.nn.MultiheadAttention in the model"):
        simstudy.collect_states(model, Tokens(tokens))


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
    arrays = by_linear_maps(parts)
    if style == "neither":
        arrays |= {f"{BERT[3].format(layer)}.bias": np.full(D, layer, np.float32) for layer in range(L)}
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
