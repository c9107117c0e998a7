#!/usr/bin/env bash
# Guess: a gradient through `mx.checkpoint` or `nn.utils.checkpoint` of MLX is that of the value beside it, with dropout too.
# Found (mlx 0.32.4 on its CPU back end, numpy 2.4.6): what is computed again for the gradient draws new random numbers.  Value and
# gradient of one call are those of two dropout masks: of 1,000 inputs 51 % are kept by both or dropped by both.  The gradient of x z with
# normal noise z is another z, uncorrelated with that of the value, so that the gradient of the mean square of x z at 1 is 0.00 on average
# for 2, while its value is 1.00.  Without a checkpoint, and with a key that is handed over, both are of one draw.  There is no warning.
# Documented: memory that is saved, nothing on random numbers.  Known: the same of other libraries, some of which restore the state; no
# report on MLX was found.
# Why it matters: checkpoints are switched on for memory and should change no number; gradients of means over noise are biased.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import mlx.core as mx
import mlx.nn as nn
import numpy as np

SIZE, DRAWS = 1000, 400
warnings.simplefilter("error")
mx.set_default_device(mx.cpu)
ones = mx.ones(SIZE)


def kept(wrap):
    """Share of inputs of which gradient and value are both kept, or both dropped; seeds tell what the value kept."""
    layer = nn.Dropout(0.5)
    mx.random.seed(1)
    alone = np.array(layer(ones))
    mx.random.seed(1)
    value, gradient = mx.value_and_grad(lambda x: wrap(layer)(x).sum())(ones)
    assert value.item() == alone.sum()
    return np.mean((np.array(gradient) > 0) == (alone > 0))


def noise(wrap, key=None):
    """Correlation of the noise of value and gradient."""
    mx.random.seed(1)
    alone = np.array(mx.random.normal((SIZE,), key=key))
    mx.random.seed(1)
    value, gradient = mx.value_and_grad(lambda x: wrap(lambda x: x * mx.random.normal((SIZE,), key=key))(x).sum())(ones)
    assert abs(value.item() - alone.sum()) < 0.01
    return np.corrcoef(alone, np.array(gradient))[0, 1]


def slope(wrap):
    """Mean gradient of (x z)^2 at x = 1, which is 2 on average, and mean value, which is 1."""
    mx.random.seed(1)
    predict = wrap(lambda x: x * mx.random.normal((SIZE,)))
    found = [mx.value_and_grad(lambda x: (predict(x) ** 2).mean())(mx.array(1.0)) for _ in range(DRAWS)]
    return [float(np.mean([each[k].item() for each in found])) for k in (0, 1)]


results = {}
for name, wrap in (("plain", lambda f: f), ("mx.checkpoint", mx.checkpoint)):
    results[name] = kept(wrap), noise(wrap), noise(wrap, mx.random.key(1)), slope(wrap)
    print(f"{name}: masks agree for {results[name][0]:.1%}; correlation of noise {results[name][1]:.3f}, with a key {results[name][2]:.3f}; "
          f"mean of (x z)^2 {results[name][3][0]:.3f} and its gradient {results[name][3][1]:.3f} for 1 and 2")
plain, check = results.values()
assert plain[0] == 1 and plain[1] > 0.999 and abs(plain[3][1] - 2) < 0.1 and check[2] > 0.999
assert abs(check[0] - 0.5) < 0.1 and abs(check[1]) < 0.15 and abs(check[3][0] - 1) < 0.1 and abs(check[3][1]) < 0.2
model = nn.Sequential(nn.Linear(20, SIZE), nn.Dropout(0.5))
weights = []
for function in (model, nn.utils.checkpoint(model)):
    mx.random.seed(1)
    value, gradients = nn.value_and_grad(model, lambda: function(mx.ones((1, 20))).sum())()
    weights.append(np.array(gradients["layers"][0]["bias"]))
print(f"nn.utils.checkpoint: {np.mean(weights[0] == weights[1]):.1%} of gradients of a layer under dropout are those without a checkpoint")
assert abs(np.mean(weights[0] == weights[1]) - 0.5) < 0.1
PY
