#!/usr/bin/env bash
# Guess: `unstack(sort=False)` gives the table that `unstack()` gives, with rows and columns in another order.
# Found: with pandas 2.3.3 values stand under labels of others, without a word; with pandas 3.0.6 they do where two
# levels of the index are left; with 3.1.1 they do not.  `pivot_table(sort=False)` is right in all three.  Known to
# pandas as an issue of 2025.
# Why it matters: numbers by replicate and method, unsorted as simulations return them, are compared under wrong names.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
cat > "$work/unsorted.py" <<'PY'
import sys

import numpy as np
import pandas as pd

levels = {"replicate": [1, 2, 3, 4], "n": [20, 40], "method": ["wald", "exact"]}
index = pd.MultiIndex.from_product(levels.values(), names=list(levels))
index = index[np.random.default_rng(0).permutation(len(index))]
numbers = pd.Series(np.arange(len(index)), index, name="estimate")


def misplaced(table):
    """Numbers of the table that stand under other labels than in the series."""
    table = table.stack(list(table.columns.names), future_stack=True).reorder_levels(numbers.index.names)
    return int((table.reindex(numbers.index) != numbers).sum())


both, method = ["n", "method"], ["method"]
found = {
    "unstack, one level left": misplaced(numbers.unstack(both, sort=False)),
    "unstack, two levels left": misplaced(numbers.unstack(method, sort=False)),
    "sorted": misplaced(numbers.unstack(both)) + misplaced(numbers.unstack(method)),
    "pivot_table": misplaced(
        numbers.reset_index().pivot_table("estimate", "replicate", both, sort=False, aggfunc="first")
    ),
}
print(f"pandas {pd.__version__}, misplaced of {len(numbers)}:", ", ".join(f"{name} {n}" for name, n in found.items()))
wrong = [name for name, n in found.items() if n > len(numbers) / 2]
assert wrong == sys.argv[1:], wrong
assert all(n == 0 for name, n in found.items() if name not in wrong), found
PY
check() {  # version, then what is wrong
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 "pandas==$1"
    "$work/venv/bin/python" "$work/unsorted.py" "${@:2}"
}
check 2.3.3 "unstack, one level left" "unstack, two levels left"
check 3.0.6 "unstack, two levels left"
check 3.1.1
