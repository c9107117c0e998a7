"""Numbers that claims compare with."""

import numpy as np


def fibonacci_learners(n_heads):
    """Return how many equally weighted learners the weights F_1, F_2 … F_H amount to."""
    weights = [1.0, 1.0]
    for _ in range(n_heads - 2):
        weights.append(weights[-1] + weights[-2])
    return np.sum(weights) ** 2 / np.sum(np.square(weights))
