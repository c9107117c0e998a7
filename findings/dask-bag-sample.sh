#!/usr/bin/env bash
# Guess: `sample` of `dask.bag.random` takes each element with the same probability, and `choices` draws each time from all of them.
# Found (dask 2026.8.0, numpy 2.4.6): `sample` does up to eight equal partitions.  Of ten, each of 100 elements, those of the last two are
# in samples of 100 1.5 times as often as the others: samples of the numbers up to 999 have a mean of 537 for 499.5, and intervals of 95 %
# cover it in 75 % of 200 samples.  A partition of 100 beside one of 900 is 18 % of the sample for 10 %, and intervals cover in 71 %; after
# a filter in 47 %.  Up to eight partitions at a time are merged by a draw without replacement with their sizes as weights, which is no
# sample of the whole.  With equal partitions `split_every=1000` is as guessed.  Means of `choices` are right, but it draws twice: of 100
# draws from one partition of 1,000 elements 62 are distinct for 95, and intervals cover in 84 %.  There is no warning.
# Documented: "unique random elements from a bag".  Known: the change of 2022 that mended errors asked whether samples are biased, and
# the request of 2020 says that it "wouldn't be perfectly uniform"; no report of a bias was found.
# Why it matters: means of samples are off by half a standard error or more, which no number of samples mends.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check dask==2026.8.0 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import random
import warnings

import dask
import dask.bag
import numpy as np
from dask.bag.random import choices, sample

SAMPLES = 200
warnings.simplefilter("error")
dask.config.set(scheduler="synchronous")
random.seed(1)


def bag(*sizes):
    """Numbers from 0 on, in partitions of these sizes."""
    ends = np.cumsum(sizes)
    return dask.bag.from_delayed([dask.delayed(range)(int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True)])


def study(name, numbers, draw, taken=100, **options):
    """Rates by partition, error of the mean of samples in standard errors, share of intervals that cover it, and distinct elements."""
    parts = [np.array(list(part)) for part in dask.compute(*numbers.to_delayed())]
    every = np.concatenate(parts)
    samples = [np.array(draw(numbers, k=taken, **options).compute()) for _ in range(SAMPLES)]
    assert all(len(each) == taken and np.isin(each, every).all() for each in samples)
    rates = np.array([np.isin(samples, part).mean() * len(every) / len(part) for part in parts])
    averages = np.mean(samples, axis=1)
    remaining = 1 if draw is choices else 1 - taken / len(every)
    limit = 1.96 * every.std() * np.sqrt(remaining / taken)
    covered = np.mean(abs(averages - every.mean()) < limit)
    distinct = np.mean([len(set(each)) for each in samples])
    print(f"{name}: rates by partition {rates.round(2)}; mean {averages.mean():.1f}, right {every.mean()}; intervals cover {covered:.0%}; "
          f"{distinct:.1f} elements of {taken} are distinct")
    return rates, (averages.mean() - every.mean()) / averages.std() * np.sqrt(SAMPLES), covered, distinct


ten, two = bag(*[100] * 10), bag(100, 900)
for name, numbers, options in (("eight equal partitions", bag(*[125] * 8), {}), ("ten, split_every=1000", ten, {"split_every": 1000})):
    rates, errors, covered, _ = study(name, numbers, sample, **options)
    assert abs(rates - 1).max() < 0.2 and abs(errors) < 4 and covered > 0.88
rates, errors, covered, _ = study("ten equal partitions", ten, sample)
assert rates[:8].max() < 1 and rates[8:].min() > 1.2 and errors > 8 and covered < 0.9
rates, errors, covered, _ = study("partitions of 100 and 900", two, sample)
assert rates[0] > 1.5 and rates[1] < 1 and errors < -8 and covered < 0.8
filtered = bag(500, 500).filter(lambda number: number < 100 or number >= 500)
rates, errors, covered, _ = study("equal partitions after a filter", filtered, sample)
assert rates[0] > 1.3 and errors < -8 and covered < 0.9
for name, numbers in (("one partition", bag(1000)), ("partitions of 100 and 900", two)):
    rates, errors, covered, distinct = study(f"choices of {name}", numbers, choices)
    assert abs(rates - 1).max() < 0.3 and abs(errors) < 4 and covered < 0.93 and distinct < 75
PY
