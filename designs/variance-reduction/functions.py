"""Numbers that claims compare with."""

import numpy as np

from simstudy import theory


def dot_product_floor(length):
    """Return the correlation of orthogonal dot-product heads under noise, for queries that they pull back by length."""
    return theory.dot_product_correlation([length, 0.0], [0.0, length], np.eye(2))
