"""Best masks of random weights, and what an error of the logits does to attention: strong lottery tickets.

The claims are those of arXiv 2511.04217.  A mask is a choice of a subset; the best one is found exactly, by meeting in
the middle (Horowitz and Sahni 1974).  The sums of the 2^k subsets of k random numbers lie around a point like a Poisson
process (Mertens 2001), from which the rates below follow.
Index legend: r replicate, i and j input feature, k hidden unit, e entry of any matrix of the target, h head.
"""

import numpy as np
from scipy.special import softmax

MAX_UNITS = 32  # hidden units for each input feature, of which all subsets are looked at


def matrices(draw, count, n_features, columns, units, scale):
    """Entries of so many target matrices (r, e), within ±scale, and the numbers that a mask picks from (r, k, e).

    Each unit of block i keeps the weight u_ik of input feature i alone: entry ij is a sum of some u_ik v_kj.
    """
    drawn = 2.0 * draw.uniforms(units, count, n_features, columns + 1) - 1.0
    targets = scale * (2.0 * draw.uniforms(count * n_features * columns) - 1.0)
    return {"targets": targets, "numbers": (drawn[..., :1] * drawn[..., 1:]).reshape(draw.count, units, -1)}


def subset_sums(numbers):
    """Sums of all 2^k subsets of numbers along the first axis, the empty one first."""
    sums = np.zeros((1, *numbers.shape[1:]))
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    return sums


def nearest_subset_sums(numbers, targets):
    """For each target (e,) the nearest sum of a subset of its own numbers (k, e), k ≥ 2."""
    half, rows = len(numbers) // 2, np.arange(len(targets))[:, None]
    left, right = (np.sort(subset_sums(part).T, axis=1) for part in (numbers[:half], numbers[half:]))
    # One search for all: the sums of each entry are shifted beyond those of the entry before.
    reach, size = np.abs(right).max() + 1.0, right.shape[1]
    wanted = np.clip(targets[:, None] - left, -reach, reach)
    above = np.searchsorted((right + 2.0 * reach * rows).ravel(), wanted + 2.0 * reach * rows)
    above = np.clip(above, size * rows + 1, size * (rows + 1) - 1)
    sums = np.concatenate([left + right.ravel()[above - step] for step in (0, 1)], axis=1)
    return sums[rows[:, 0], np.abs(sums - targets[:, None]).argmin(axis=1)]


def head(draw, width, n_features=2, scale=0.5, n_keys=32):
    """Tokens, a target head with logits x'Wx and values v·x, and a random head of inner dimension ``width``."""
    source = matrices(draw, 1, n_features, n_features + 1, width // n_features, scale)
    return source | {"tokens": draw.normals(n_keys, n_features)}


def mask_head(tokens, targets, numbers):
    """Errors of the entries and of the output of the best mask of a random head."""
    d = tokens.shape[1]
    masked = nearest_subset_sums(numbers, targets)
    outputs = []
    for matrix in (targets, masked):
        matrix = tokens @ matrix.reshape(d, d + 1)  # [W | v]
        outputs.append(softmax(matrix[:, :-1] @ tokens.T, axis=1) @ matrix[:, -1])
    entry, output = np.abs(masked - targets), np.abs(outputs[1] - outputs[0])
    return {"log_entry_error": np.log(entry).mean(), "log_output_error": np.log(output.max())}


def nearest_sum_theory(width, n_features=2, scale=0.5):
    """Mean log distance of a target from the nearest sum, if sums are a Poisson process of the density of a normal law.

    Of k numbers, products of two uniforms on (−1, 1), a random sum has the variance Σx²/4, near k/36; as Σx² is random,
    the mean of its logarithm is smaller by (81/25 − 1)/2k.
    """
    count = width // n_features
    variance = count / 36.0
    log_density = -0.5 * (np.log(2.0 * np.pi * variance) - 1.12 / count + 1.0 + scale**2 / 3.0 / variance)
    return {"log_entry_error": -np.euler_gamma - (count + 1) * np.log(2.0) - log_density}


def heads(draw, n_heads, n_features=2, scale=0.1):
    """Target heads of two matrices each, and a random head for each of them."""
    return matrices(draw, 2 * n_heads, n_features, n_features, MAX_UNITS, scale)


def mask_heads(targets, numbers, largest_error, n_features=2):
    """Inner dimension of each random head with which no entry of any target errs by more than the tolerance."""
    missed = np.arange(len(targets))
    for count in range(2, MAX_UNITS):
        sums = nearest_subset_sums(numbers[:count, missed], targets[missed])
        missed = missed[np.abs(sums - targets[missed]) > largest_error]
        if not missed.size:
            return {"needed_width": n_features * count}
    return {"needed_width": n_features * MAX_UNITS}


def stack(draw, width, layers=1, n_features=3, scale=0.1, n_keys=16):
    """Tokens, target layers of one head each, and random layers of inner dimension ``width``."""
    source = matrices(draw, 2 * layers, n_features, n_features, width // n_features, scale)
    return source | {"tokens": draw.normals(n_keys, n_features)}


def mask_stack(tokens, targets, numbers, layers=1, normalisation="none"):
    """Largest error of the last hidden states of layers with residual connections that are best masks."""
    d, ends = tokens.shape[1], []
    for entries in (targets, nearest_subset_sums(numbers, targets)):
        states = tokens
        for logits, values in entries.reshape(layers, 2, d, d):
            states = states + softmax(4.0 * states @ logits @ states.T, axis=1) @ states @ values
            if normalisation == "layer_norm":
                states = (states - states.mean(axis=1, keepdims=True)) / states.std(axis=1, keepdims=True)
        ends.append(states)
    return {"log_stack_error": np.log(np.abs(ends[1] - ends[0]).max())}


def errors_of_heads(draw, n_heads, shared=0.0):
    """Gaussian errors (r, h) of heads, any two of which are correlated."""
    drawn = draw.normals(n_heads + 1)
    return {"errors": np.sqrt(shared) * drawn[:, :1] + np.sqrt(1.0 - shared) * drawn[:, 1:]}


def choose_heads(errors):
    """Errors of the average of all heads, and of the best subset of them."""
    found = np.abs(subset_sums(errors)[1:] / subset_sums(np.ones(len(errors)))[1:])
    return {"log_average_error": np.log(found[-1]), "log_mask_error": np.log(found.min())}


def nearest_sum_rate(n_features):
    """Change of the log error of the best mask with each hidden unit, of which an entry sees one in d: −(ln 2)/d."""
    return -np.log(2.0) / n_features


def needed_width_rate(n_features, n_heads, units):
    """What each unit of ln H adds to the inner dimension that H heads need, about ``units`` for each feature.

    In units of its mean at the centre of all sums, which falls like 2^-k √k, an error exceeds y with probability
    1/(y √(π ln y)); the largest of M = 2d²H errors thus grows like M.
    """
    entries = 2.0 * n_features**2 * n_heads
    return n_features / (np.log(2.0) - 0.5 / units) / (1.0 + 0.5 / np.log(entries))


def best_average_rate(n_heads):
    """Change of the log error of the best subset of H heads with each head, whose density grows like 2^H √H."""
    return -np.log(2.0) - 0.5 / n_heads
