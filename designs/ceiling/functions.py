"""Numbers that claims compare with."""

import numpy as np

from simstudy import theory


def correlation_floor(head_dim, bandwidth):
    """Return the correlation of orthogonal heads at x = 0 under noise: (1 − κ²)^(p/2), κ = 1/(1 + b²)."""
    return (1 - (1 / (1 + bandwidth**2)) ** 2) ** (head_dim / 2)


def dot_product_floor(length):
    """Return the correlation of orthogonal dot-product heads under noise, for queries that they pull back by length."""
    return theory.dot_product_correlation([length, 0.0], [0.0, length], np.eye(2))
