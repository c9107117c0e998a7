#!/usr/bin/env bash
# Guess: blackjax's `irmh`, Metropolis-Hastings with independent proposals, called as in its example draws from the density that it is given.
# Found (blackjax 1.7.1, jax 0.10.2, numpy 2.4.6): the example gives no density of proposals; then they count as symmetric, which independent
# ones are not, and chains draw from the product of both densities.  Of a standard normal distribution, with proposals from a normal one
# with deviation 2, the variance is 0.80 for 1; with proposals N(1, 1) the mean is 0.50 for 0 and the variance 0.50; of a gamma
# distribution with shape 3 and proposals with shape 2 the mean is 2.00 for 3, as of shape 4 at twice the rate.  Chains that start from
# exact draws move away to there.  With the density as third argument, of a function (from, to), all are right; as (to, from), the order of
# words in "proposal knowing the current state", variances are 0.66.  Uniform proposals are right.  There is no warning.
# Documented: that proposals count as symmetric without a density.  No report on this was found.
# Why it matters: estimates are pulled to what was proposed, more data mend it only slowly, and acceptance looks the better for it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check blackjax==1.7.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$work/venv/bin/python" - <<'PY'
import warnings

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

warnings.simplefilter("error")
jax.config.update("jax_enable_x64", True)
CHAINS, STEPS = 100_000, 30


def normal(x, mean=0.0, deviation=1.0):
    return -0.5 * ((x - mean) / deviation) ** 2


def gamma(x, shape):
    return (shape - 1) * jnp.log(x) - x


def study(name, target, exact, proposal, density, expected, right):
    found = {}
    ways = {"example": (), "(from, to)": (lambda old, new: density(new.position),), "(to, from)": (lambda new, old: density(new.position),)}
    for way, third in ways.items():
        kernel = blackjax.irmh(target, proposal, *third)
        state = jax.vmap(kernel.init)(jnp.array(exact))
        step, key = jax.jit(jax.vmap(kernel.step)), jax.random.key(1)
        for _ in range(STEPS):
            key, draw = jax.random.split(key)
            state, info = step(jax.random.split(draw, CHAINS), state)
        found[way] = float(state.position.mean()), float(state.position.var()), float(info.acceptance_rate.mean())
    print(f"{name}: {', '.join(f'{way} mean {mean:.3f}, variance {var:.3f}, accepted {rate:.0%}' for way, (mean, var, rate) in found.items())}; "
          f"of the target {right}, of the product {expected}")
    assert np.allclose(found["example"][:2], expected, atol=0.05) and np.allclose(found["(from, to)"][:2], right, atol=0.08)
    return found


rng = np.random.default_rng(1)
start = rng.normal(size=CHAINS)
found = study("N(0, 1), proposals N(0, 4)", normal, start, lambda key: 2 * jax.random.normal(key), lambda x: normal(x, 0.0, 2.0),
              (0, 0.8), (0, 1))
assert abs(found["(to, from)"][1] - 2 / 3) < 0.02
study("N(0, 1), proposals N(1, 1)", normal, start, lambda key: 1 + jax.random.normal(key), lambda x: normal(x, 1.0), (0.5, 0.5), (0, 1))
study("gamma, shape 3, proposals of shape 2", lambda x: gamma(x, 3), rng.gamma(3, size=CHAINS), lambda key: jax.random.gamma(key, 2.0),
      lambda x: gamma(x, 2), (2, 1), (3, 3))
study("N(0, 1), proposals uniform", normal, start, lambda key: jax.random.uniform(key, minval=-6.0, maxval=6.0), lambda x: 0.0 * x,
      (0, 1), (0, 1))
PY
