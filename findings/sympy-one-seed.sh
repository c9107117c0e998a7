#!/usr/bin/env bash
# Guess: `sample(X - Y, size=..., seed=0)` of sympy.stats draws two variables that are independent, as `variance(X - Y)` has them.
# Found (sympy 1.14.0, scipy 1.17.1, numpy 2.4.6): each variable starts its own generator from an integer seed, and two of one
# distribution are one.  X - Y is 0 throughout, two dice show doubles only, four times a quarter of a circle is 2.82, and an
# exponential variable plus one of half its mean has variance 2.25, not 1.25.  `sample_iter` is alike.  With a Generator, a
# RandomState or no seed it is as guessed.  `E` and `P` of samples take a seed and ignore it, and `np.random.seed` does nothing.
# Documented: what a seed may be, and that the library's own holds without one, which it does not; no report was found.
# Why it matters: a seed that is set for reproducible results makes them wrong; means of sums are right, so that tests pass.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check sympy==1.14.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import math

import numpy as np
from sympy.stats import Die, E, Exponential, Normal, P, Uniform, sample, sample_iter, variance

SIZE = 20_000
x, y = Normal("x", 0, 1), Normal("y", 0, 1)
u, v = Uniform("u", 0, 1), Uniform("v", 0, 1)
slow, fast = Exponential("slow", 1), Exponential("fast", 2)
one, other = Die("one"), Die("other")
found = {}
for name, make in (("integer", lambda: 0), ("Generator", lambda: np.random.default_rng(0)),
                   ("RandomState", lambda: np.random.RandomState(0)), ("none", lambda: None)):
    def draw(expression, library="scipy"):
        return np.asarray(sample(expression, size=SIZE, library=library, seed=make()), float)

    sums = draw(slow + fast)
    found[name] = {
        "variance of x - y": draw(x - y).var(), "the same by NumPy": draw(x - y, "numpy").var(),
        "variance of slow + fast": sums.var(), "mean of slow + fast": sums.mean(),
        "four quarters of a circle": 4 * np.mean(draw(u**2 + v**2) < 1), "sums of two dice": len(np.unique(draw(one + other)))}
    print(f"seed {name}:", ", ".join(f"{key} {value:.3f}" for key, value in found[name].items()))
right = {"variance of x - y": variance(x - y), "the same by NumPy": 2, "variance of slow + fast": variance(slow + fast),
         "mean of slow + fast": 1.5, "four quarters of a circle": math.pi, "sums of two dice": 11}
for name in ("Generator", "RandomState", "none"):
    assert all(abs(found[name][key] - float(value)) < 0.15 for key, value in right.items())
wrong = found["integer"]
assert wrong["variance of x - y"] == wrong["the same by NumPy"] == 0 and wrong["sums of two dice"] == 6
assert abs(wrong["variance of slow + fast"] - 2.25) < 0.2 and abs(wrong["mean of slow + fast"] - 1.5) < 0.05
assert abs(wrong["four quarters of a circle"] - 4 * math.sqrt(0.5)) < 0.05
pairs = list(sample_iter(x - y, seed=0, numsamples=100))
ignored = [[float(E((x - y) ** 2, numsamples=2000, seed=0)) for _ in range(2)],
           [float(P(x > y, numsamples=2001, seed=0)) for _ in range(2)]]
print("x - y by sample_iter:", float(np.var(pairs)), "; E and P, twice with one seed:", ignored)
again = []
for _ in range(2):
    np.random.seed(0)
    again.append(float(sample(x)))
print("one draw after np.random.seed(0), twice:", again)
assert again[0] != again[1]
assert not any(pairs) and ignored[0][0] != ignored[0][1]
assert all(abs(each - 2) < 0.4 for each in ignored[0]) and all(abs(each - 0.5) < 0.06 for each in ignored[1])
PY
