"""Heads of one's own, for masks.toml: directions that fan out from the first axis."""

import numpy as np


def fan(normals):
    """Projections (head, feature, dimension) of full rank; normals of that shape are there for heads at random."""
    n_heads, n_features, head_dim = normals.shape
    heads = np.tile(np.eye(n_features, head_dim), (n_heads, 1, 1))
    heads[:, head_dim, 0] = np.arange(n_heads)
    return heads
