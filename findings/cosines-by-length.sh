#!/usr/bin/env bash
# Guess: polars-ds's `cosine_sim` is a cosine: from -1 to 1, 1 of a column with itself, and the same in other units.
# Found (polars-ds 0.13.0, polars 2.1.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): it divides by the root of the product of lengths instead of
# the product, and grows with both.  Of two columns with a cosine of 0.7 it is 8 for 100 rows and 28 for 1,000; of a column with itself it is
# its length's 9 and 32; of ten times a column 3.16 times as much.  Of 20 keys of unequal lengths the one most like a query is right
# in 32 % of cases, by cosines in 51 %, and the longest in 22 %.  Polars' `corr` and scikit-learn's cosines are right.  There is no warning.
# Documented: "column-and-column cosine similarity".  No report on this was found.
# Why it matters: thresholds such as 0.9 keep most pairs of long columns, and those with large numbers seem to be the most similar.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check polars-ds==0.13.0 polars==2.1.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import polars as pl
import polars_ds as pds
from sklearn.metrics.pairwise import cosine_similarity

warnings.simplefilter("error")
rng = np.random.default_rng(1)
for rows in (3, 10, 100, 1000):
    x = rng.normal(size=rows)
    y = x + rng.normal(size=rows)
    table = pl.DataFrame({"x": x, "y": y, "x10": 10 * x})
    found, same, scaled = table.select(a=pds.cosine_sim("x", "y"), b=pds.cosine_sim("x", "x"), c=pds.cosine_sim("x10", "y")).row(0)
    lengths = np.linalg.norm(x), np.linalg.norm(y)
    right = cosine_similarity([x], [y])[0, 0]
    centred = table.select(pl.corr("x", "y")).item()
    print(f"{rows} rows: cosine_sim {found:.2f}, of x with itself {same:.2f}, of 10 x {scaled:.2f}; cosine {right:.3f}, correlation {centred:.3f}")
    assert np.isclose(right, x @ y / np.prod(lengths)) and np.isclose(found, x @ y / np.prod(lengths) ** 0.5)
    assert np.isclose(same, lengths[0]) and np.isclose(scaled / found, 10**0.5)
    assert np.isclose(centred, cosine_similarity([x - x.mean()], [y - y.mean()])[0, 0])

KEYS, SIZE, REPEATS = 20, 16, 300
longest, hits, hits_by_cosine = 0, 0, 0
for _ in range(REPEATS):
    keys = rng.normal(size=(KEYS, SIZE)) * np.exp(rng.normal(size=(KEYS, 1)))
    place = rng.integers(KEYS)
    query = keys[place] / np.linalg.norm(keys[place]) + 0.5 * rng.normal(size=SIZE)
    table = pl.DataFrame({"query": query, **{f"k{each}": keys[each] for each in range(KEYS)}})
    similar = np.array(table.select(pds.cosine_sim("query", f"k{each}").alias(f"k{each}") for each in range(KEYS)).row(0))
    cosines = cosine_similarity(query[None], keys)[0]
    longest += similar.argmax() == np.linalg.norm(keys, axis=1).argmax()
    hits += similar.argmax() == place
    hits_by_cosine += cosines.argmax() == place
print(f"the most similar of {KEYS} keys is the longest in {longest / REPEATS:.0%}, the right one in {hits / REPEATS:.0%}, by cosines in "
      f"{hits_by_cosine / REPEATS:.0%}")
assert longest / REPEATS > 0.15 and hits < 0.9 * hits_by_cosine
PY
