"""One set of projections, and how families of models lay it out."""

import numpy as np
import pytest

L, H, D, P = 3, 4, 8, 2
CONFIG = {"num_hidden_layers": L, "num_attention_heads": H, "hidden_size": D}
BERT = [f"encoder.layer.{{0}}.attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")]
LLAMA = [f"layers.{{0}}.self_attn.{name}_proj" for name in "qkvo"]


@pytest.fixture
def parts():
    """Matrices (d, H p), biases (H p,) of query, key and value, and output (H p, d), of three layers."""
    rng = np.random.default_rng(0)
    return {
        "matrices": rng.standard_normal((3, L, D, H * P)).astype(np.float32),
        "biases": rng.standard_normal((3, L, H * P)).astype(np.float32),
        "output": rng.standard_normal((L, H * P, D)).astype(np.float32),
    }


def by_linear_maps(parts, names=BERT, prefix=""):
    """Arrays of four linear maps, of which the last has no bias."""
    arrays = {}
    for layer in range(L):
        for k, name in enumerate(names[:3]):
            arrays[f"{prefix}{name.format(layer)}.weight"] = parts["matrices"][k, layer].T
            arrays[f"{prefix}{name.format(layer)}.bias"] = parts["biases"][k, layer]
        arrays[f"{prefix}{names[3].format(layer)}.weight"] = parts["output"][layer].T
    return arrays


def require_same(heads, parts):
    biases = heads.query_bias, heads.key_bias, heads.value_bias
    for k, (matrix, bias) in enumerate(zip((heads.query, heads.key, heads.value), biases, strict=True)):
        for layer, head in np.ndindex(L, H):
            columns = slice(head * P, head * P + P)
            np.testing.assert_array_equal(matrix[layer, head], parts["matrices"][k, layer][:, columns])
            np.testing.assert_array_equal(bias[layer, head], parts["biases"][k, layer][columns])
            np.testing.assert_array_equal(heads.output[layer, head], parts["output"][layer][columns].T)
    assert heads.scale == pytest.approx(P**-0.5)
