"""Estimates of the centre of a sample from Student's t distribution."""

import numpy as np


def sample(draw, n, df):
    """Return a sample of n numbers for each replicate; the first axis of every array is that of replicates."""
    normals, others = draw.normals(n), draw.normals(n, df)
    return {"x": normals / np.sqrt((others**2).mean(axis=-1))}


def mean(x):
    """Return measures of the arithmetic mean."""
    return estimates(x.mean(axis=1))


def median(x):
    """Return measures of the median."""
    return estimates(np.median(x, axis=1))


def estimates(estimate):
    """Return numbers of each replicate by name; the measures that the design lists are averaged."""
    return {"absolute_error": np.abs(estimate), "too_large": estimate > 0.5}
