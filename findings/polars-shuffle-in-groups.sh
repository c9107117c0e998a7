#!/usr/bin/env bash
# Guess: `shuffle(seed=1).over("block")` shuffles each block on its own, and the seed makes it repeatable.
# Found (polars 2.1.0): all blocks of one size are shuffled alike, as the seed starts anew in each.  Treatments of 50 blocks of
# 4 have 6 arrangements in 2000 permutations.  `sample` does the same.  Without a seed blocks differ, but then
# `pl.set_random_seed` does not repeat them.  Sorting each block by a column of random numbers is as guessed.
# Known: by design, says a change of 2023, so that one seed does one thing; the documentation of `shuffle` has nothing on groups.
# Why it matters: a permutation test within blocks has six values to compare with, and can never reject.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import polars as pl

rng = np.random.default_rng(0)
BLOCKS = 50
treated = pl.Series([1, 1, 0, 0] * BLOCKS)
y = rng.normal(size=4 * BLOCKS) + 0.8 * treated.to_numpy()
table = pl.DataFrame({"block": np.repeat(np.arange(BLOCKS), 4), "treated": treated, "y": y})


def difference(treated):
    treated = treated.to_numpy() == 1
    return y[treated].mean() - y[~treated].mean()


def shuffled(seed):
    return table.select(pl.col("treated").shuffle(seed=seed).over("block"))["treated"]


def sorted_by_numbers(_):
    with_numbers = table.with_columns(number=rng.random(len(table)))
    return with_numbers.select(pl.col("treated").sort_by("number").over("block"))["treated"]


seen, found = difference(treated), {}
for name, permuted in (("seed", shuffled), ("no seed", lambda _: shuffled(None)), ("sorted", sorted_by_numbers)):
    others = np.array([difference(permuted(seed)) for seed in range(2000)])
    found[name] = len(np.unique(others.round(9))), ((abs(others) >= abs(seen) - 1e-9).sum() + 1) / 2001
    print("{}: {} values of the difference in 2000 permutations, p = {:.4f}".format(name, *found[name]))
assert found["seed"][0] == 6 and found["seed"][1] > 0.1 and all(found[name][0] > 1900 for name in ("no seed", "sorted"))
assert all(found[name][1] < 0.001 for name in ("no seed", "sorted"))
places = table.with_columns(place=pl.int_range(4).over("block"))
again = pl.col("place").sample(fraction=1.0, with_replacement=True, seed=1).over("block")
assert len(np.unique(places.select(again)["place"].to_numpy().reshape(BLOCKS, 4), axis=0)) == 1
repeats = set()
for _ in range(10):
    pl.set_random_seed(1)
    repeats.add(tuple(shuffled(None)))
print(f"no seed, after set_random_seed(1), 10 times: {len(repeats)} arrangements")
assert len(repeats) > 1
PY
