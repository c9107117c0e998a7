#!/usr/bin/env bash
# Guess: UQpy's DREAM draws from its target with any number of pairs of chains that a jump takes, and most of its accepted proposals move.
# Found (UQpy 4.1.6, scipy 1.17.1, numpy 2.4.6): a jump takes one pair less than it should, and its factor, 2.38 over a root, is stored as an
# integer, mostly 0.  With `jump_rate=1` no chain moves by more than `c_star`, 1e-6, and with three pairs, the default, 11 % of steps move; as
# steps that do not move are accepted, the acceptance rates are 1.00 and 0.88.  By hand 39 % and 37 % of steps are accepted, and move.
# The means of 500 later steps of 8 chains are those of the start with one pair, and have the error 0.092 for 0.051 with three.  There is no
# warning.
# Documented: `jump_rate` as "Jump rate. Default: 3".  Known: the shape of its normal numbers was reported in 2025; on this nothing was found.
# Why it matters: chains that stand still look well accepted, and means have larger errors than the number of steps tells.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check UQpy==4.1.6 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from UQpy.sampling import DREAM

CHAINS, STEPS, RUNS, DIMENSION = 8, 1000, 12, 2
warnings.simplefilter("error")


def log_density(x):
    return -0.5 * (x**2).sum(axis=1)


def by_uqpy(start, pairs, seed):
    sampler = DREAM(
        log_pdf_target=log_density, dimension=DIMENSION, n_chains=CHAINS, jump_rate=pairs, seed=start.tolist(), save_log_pdf=True,
        concatenate_chains=False, random_state=seed)
    sampler.run(nsamples_per_chain=STEPS)
    return sampler.samples, np.mean(sampler.acceptance_rate)


def by_hand(start, pairs, seed):
    """One to that many pairs, factor 2.38 over the root of twice pairs times coordinates, or 1 in a fifth of steps."""
    random, x, kept, accepted = np.random.default_rng(seed), start.copy(), [], 0
    for _ in range(STEPS):
        proposals = x.copy()
        for chain in range(CHAINS):
            taken = random.integers(1, pairs + 1)
            others = random.permutation(np.delete(np.arange(CHAINS), chain))
            moved = random.random(DIMENSION) < random.integers(1, 4) / 3
            if not moved.any():
                moved[random.integers(DIMENSION)] = True
            factor = 1 if random.random() < 0.2 else 2.38 / (2 * taken * moved.sum()) ** 0.5
            jump = factor * (1 + random.uniform(0, 0.2)) * (x[others[:taken]] - x[others[taken : 2 * taken]]).sum(axis=0)
            proposals[chain] += moved * (jump + 1e-6 * random.normal(size=DIMENSION))
        accept = np.log(random.random(CHAINS)) < log_density(proposals) - log_density(x)
        x[accept], accepted = proposals[accept], accepted + accept.mean()
        kept.append(x.copy())
    return np.array(kept), accepted / STEPS


found = {}
for way in (by_uqpy, by_hand):
    for pairs in (1, 3):
        each = []
        for seed in range(1, RUNS + 1):
            samples, rate = way(np.random.default_rng(seed).normal(2, 0.5, (CHAINS, DIMENSION)), pairs, seed)
            moved = (np.abs(np.diff(samples, axis=0)).max(axis=2) > 1e-4).mean()
            half = samples[STEPS // 2 :]
            each.append([rate, moved, half.var(axis=(0, 1)).mean(), *half.mean(axis=(0, 1))])
        each = np.array(each)
        rate, moved, spread, mean = [*each[:, :3].mean(axis=0), each[:, 3:].mean()]
        found[way, pairs] = rate, moved, mean, error = rate, moved, mean, (each[:, 3:] ** 2).mean() ** 0.5
        print(f"{way.__name__}, {pairs} pairs at most: {rate:.2f} accepted, {moved:.3f} moved, mean {mean:.2f} with root mean square error "
              f"{error:.3f}, variance {spread:.2f}")
(rate, moved, mean, _), (later_rate, later_moved, _, error) = found[by_uqpy, 1], found[by_uqpy, 3]
assert rate == 1 and moved == 0 and mean > 1.8 and later_rate > 0.85 and later_moved < 0.15
for pairs in (1, 3):
    rate, moved, mean, right = found[by_hand, pairs]
    assert abs(rate - moved) < 0.01 and moved > 0.35 and abs(mean) < 0.05 and error > 1.4 * right
PY
