"""Numbers that claims compare with."""

import numpy as np

from simstudy import theory


def dot_product_floor(length):
    """Return the correlation of orthogonal dot-product heads under noise, for queries that they pull back by length."""
    return theory.dot_product_correlation([length, 0.0], [0.0, length], np.eye(2))


def query_averaged_heads(n_heads, head_dim, bandwidth):
    """Return how many independent heads orthogonal ones amount to over Gaussian queries, under noise, for many keys."""
    # Covariances of orthogonal heads average to 1 over n, variances to those of aligned heads.
    return n_heads / (1 + (n_heads - 1) / float(theory.averaged_noise_ratio(np.zeros(head_dim), bandwidth)))
