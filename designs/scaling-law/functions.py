"""Numbers that claims compare with."""

from simstudy import theory


def limiting_slope(bandwidth, query_scale, bias_rate=0.0):
    """Return the slope in ln n of the head dimension at which squared bias and variance balance."""
    return theory.limiting_slope(bandwidth, query_scale, bias_rate)
