"""Numbers that claims compare with."""

import numpy as np

from simstudy import theory


def fibonacci_learners(n_heads):
    """Return how many equally weighted learners the weights F_1, F_2 … F_H amount to."""
    weights = [1.0, 1.0]
    while len(weights) < n_heads:
        weights.append(weights[-1] + weights[-2])
    return theory.effective_learners(np.array(weights[:n_heads]))
