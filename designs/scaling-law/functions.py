"""Numbers that claims compare with."""

import numpy as np

from simstudy import theory


def limiting_slope(bandwidth, query_scale, bias_rate=0.0):
    """Return the slope in ln n of the head dimension at which squared bias and variance balance, 1/(g + ln L).

    L is what one more dimension multiplies the variance of a head by, averaged over queries; the squared bias falls
    like exp(-g p).
    """
    return float(1 / (bias_rate + np.log(theory.averaged_noise_ratio(np.zeros(1), bandwidth, query_scale))))


def mean_square(amplitude, rate, n_active, query_scale):
    """Return the error of an estimate of 0: the mean of (Σ a e^(−rate (j − 1)) sin x_j)² over Gaussian queries."""
    return float(amplitude**2 * np.exp(-2 * rate * np.arange(n_active)).sum() * (1 - np.exp(-2 * query_scale**2)) / 2)
