"""Estimates of the centre of a sample from Student's t distribution."""

import numpy as np


def sample(draw, n, df):
    """Samples of n numbers, one for each replicate: the first axis of every array is that of replicates."""
    normals, others = draw.normals(n), draw.normals(n, df)
    return {"x": normals / np.sqrt((others**2).mean(axis=-1))}


def mean(x):
    """The arithmetic mean."""
    return estimates(x.mean(axis=1))


def median(x):
    """The median."""
    return estimates(np.median(x, axis=1))


def estimates(estimate):
    """Numbers of each replicate by name: those that the design lists as measures are averaged."""
    return {"absolute_error": np.abs(estimate), "too_large": estimate > 0.5}
