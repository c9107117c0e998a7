#!/usr/bin/env bash
# Guess: sample entropy hardly changes when one more value comes to a series of 4,999, for counts with a whole number as tolerance too.
# Found (antropy 0.2.3, neurokit2 0.3.0, numpy 2.3.5, scipy 1.17.1): it falls from 1.80 to 0.76 for Poisson counts of mean 3 and tolerance 1.
# Below 5,000 values only distances below the tolerance match, from 5,000 on equal ones too, as always in neurokit2.  The same metric by its
# other name "infinity" gives 0.76 for 4,999 values too.
# So 4,999 counts with tolerance 2 have the entropy of 5,000 with tolerance 1.  Values rounded to whole multiples of 1/8, with 1/4 as tolerance,
# give 2.22 and 1.72.  `app_entropy` counts equal distances for all sizes.  For values that are not rounded all agree.  There is no warning.
# Documented: distances less than the tolerance, and that the ways below and from 5,000 values should produce equivalent results.
# Reports that name this were not found, though there are some of other differences between libraries.
# Why it matters: counts and rounded measurements are common in series, and their entropies by length or by library are not comparable.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check antropy==0.2.3 neurokit2==0.3.0 numpy==2.3.5 scipy==1.17.1
MPLBACKEND=agg "$work/venv/bin/python" -W ignore - <<'PY'
import warnings

import antropy
import neurokit2
import numpy as np

LENGTHS = 4999, 5000


def by_pairs(x, tolerance, closed, order=2):
    """Sample entropy by its definition: from all pairs of windows, matching below the tolerance or up to it."""
    windows = np.lib.stride_tricks.sliding_window_view(x, order + 1)
    short = long = 0
    for place in range(len(windows) - 1):
        distances = np.abs(windows[place + 1 :] - windows[place])
        near = distances <= tolerance if closed else distances < tolerance
        matches = near[:, :order].all(axis=1)
        short += matches.sum()
        long += (matches & near[:, order]).sum()
    return -np.log(long / short)


rng = np.random.default_rng(1)
counts, normals = rng.poisson(3.0, LENGTHS[1]).astype(float), rng.normal(size=LENGTHS[1])
cases = {"counts": (counts, (1, 2)), "rounded to 1/8": (np.round(8 * normals) / 8, (0.25,)), "not rounded": (normals, (0.25,))}
warnings.simplefilter("error")
found = {}
for name, (series, tolerances) in cases.items():
    for tolerance in tolerances:
        for length in LENGTHS:
            x = series[:length]
            value = antropy.sample_entropy(x, tolerance=tolerance)
            below, up_to = (by_pairs(x, tolerance, closed) for closed in (False, True))
            other = neurokit2.entropy_sample(x, tolerance=tolerance)[0]
            print(f"{name}, tolerance {tolerance}, {length} values: antropy {value:.3f}, neurokit2 {other:.3f};"
                  f" by pairs below the tolerance {below:.3f}, up to it {up_to:.3f}")
            assert np.isclose(value, up_to if length == LENGTHS[1] else below, rtol=1e-9)
            assert np.isclose(other, up_to, rtol=1e-9) and (below > up_to + 0.15) == (name != "not rounded")
            found[name, tolerance, length] = value
assert found["counts", 1, 4999] > 1.7 and found["counts", 1, 5000] < 0.8
assert abs(found["counts", 2, 4999] - found["counts", 1, 5000]) < 0.001
assert abs(found["not rounded", 0.25, 4999] - found["not rounded", 0.25, 5000]) < 0.01
renamed = antropy.sample_entropy(counts[: LENGTHS[0]], tolerance=1, metric="infinity")
print(f"counts, tolerance 1, {LENGTHS[0]} values: antropy with metric 'infinity' {renamed:.3f}")
assert np.isclose(renamed, by_pairs(counts[: LENGTHS[0]], 1, True), rtol=1e-9)
approximate = [antropy.app_entropy(counts[:length], tolerance=1) for length in LENGTHS]
print(f"approximate entropy of counts, {LENGTHS} values: {approximate[0]:.3f}, {approximate[1]:.3f}")
assert abs(approximate[0] - approximate[1]) < 0.01
PY
