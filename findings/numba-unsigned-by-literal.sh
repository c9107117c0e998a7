#!/usr/bin/env bash
# Guess: an element of a uint64 array and a small number give uint64, as in NumPy 2, or float64, as in NumPy 1.
# Found (numba 0.68.1, numpy 2.4.6): they give int64, in which numbers from 2^63 on are negative: quotients and remainders are
# others than in NumPy, without a word.  With np.uint64(number) all are uint64 and right.
# Why it matters: random words, hashes and addresses are such numbers; half of them give another quotient than in NumPy.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import operator

import numba
import numpy as np

word = np.full(1, 2**64 - 1, np.uint64)
for name in ("floordiv", "mod"):
    act = getattr(operator, name)

    @numba.njit
    def by_literal(x):
        return act(x[0], 7)

    @numba.njit
    def by_unsigned(x):
        return act(x[0], np.uint64(7))

    exact, found = act(word, np.uint64(7))[0], by_literal(word)
    kinds = [str(each.nopython_signatures[0].return_type) for each in (by_literal, by_unsigned) if by_unsigned(word) == exact]
    print(name, "NumPy", exact, "compiled", found, kinds)
    assert found != exact == act(word, 7)[0] and kinds == ["int64", "uint64"]
PY
