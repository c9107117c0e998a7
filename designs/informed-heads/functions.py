"""Orthogonal against aligned heads: targets drawn without regard to the heads, and targets that they know in part.

Keys are N(0, I), heads Gaussian kernels on orthonormal projections; the mean over noise, and over directions and phases
of a target, is taken in closed form in each replicate.
Index legend: n key; q query; w wave; h head; f feature.
"""

import numpy as np
from scipy.special import ndtri, softmax
from scipy.stats import chi2, expon, qmc

from simstudy.theory import alignment_threshold, averaged_noise_ratio, isotropic_bias

SPECTRA = {  # quantiles of the squared scale of frequencies: of the squared exponential, Matérn 3/2, 1/(1 + r²/2)
    "squared exponential": np.ones_like,
    "Matérn": lambda level: 3 / chi2(3).isf(level),
    "rational quadratic": expon.ppf,
}


def bandwidth_of(bandwidth, head_dim):
    """Bandwidth as a number; "attention" is that of the temperature √p."""
    return head_dim**0.25 if bandwidth == "attention" else bandwidth


def size(head_dim, bandwidth, effective_keys):
    """Number of keys of which a head of one key projection has so many effective ones, on average over queries."""
    return int(np.ceil(effective_keys * averaged_noise_ratio(np.zeros(head_dim), bandwidth_of(bandwidth, head_dim))))


def weights(keys, queries, bandwidth):
    """Weights (q, n) of one head for projected keys and queries."""
    squares = 0.5 * (keys**2).sum(axis=1)
    return softmax((queries @ keys.T - squares) / bandwidth**2, axis=1)


# ------------------------------------------------------------------------------- targets without regard to the heads


def field(rng, n_keys=1024, head_dim=2, count=32, spectrum="squared exponential", frequency_sd=1.0):
    """Two sets of keys, queries, and frequencies (w, f) of an isotropic field, both spread evenly."""
    n_features = 2 * head_dim
    points = [qmc.Sobol(size, rng=int(rng.integers(2**32))).random(count) for size in (n_features, n_features + 1)]
    queries, waves = (ndtri(each[:, :n_features]) for each in points)
    scale = np.sqrt(SPECTRA[spectrum](points[1][:, n_features]))
    return {
        "keys": rng.normal(size=(2, n_keys, n_features)),
        "queries": queries,
        "frequencies": frequency_sd * scale[:, None] * waves,
    }


def rotate(keys, queries, frequencies, first, second, bandwidth, noise_sd=1.0):
    """Squared bias of two heads of dimension 2 at two angles in degrees, and their mean squared error."""
    angles = np.radians([first, second])
    turned = np.vstack([np.diag(np.cos(angles)), np.diag(np.sin(angles))])
    errors, noise = [], []
    for rows in keys:
        both = [weights(rows @ head, queries @ head, bandwidth) for head in (np.eye(4)[:, :2], turned)]
        average = (both[0] + both[1]) / 2
        errors.append(average @ np.exp(1j * rows @ frequencies.T) - np.exp(1j * queries @ frequencies.T))
        noise.append(noise_sd**2 * (average**2).sum(axis=1).mean())
    return {
        "field_bias": (errors[0] * errors[1].conj()).real.mean(),
        "field_error": np.mean([(abs(each) ** 2).mean() for each in errors]) + np.mean(noise),
    }


def field_theory(first, second, bandwidth, spectrum="squared exponential", frequency_sd=1.0):
    """Squared bias for many keys."""
    scales = frequency_sd * np.sqrt(SPECTRA[spectrum]((np.arange(4000) + 0.5) / 4000))
    biases = isotropic_bias(np.radians([first, second]), bandwidth, scales, n_heads=2, n_features=4)
    return {"field_bias": biases.mean()}


# ------------------------------------------------------------------------------- targets that heads know in part


def table(rng, n_heads, head_dim, bandwidth, effective_keys=64, count=16, noise_sd=0.0):
    """Keys, queries, weights (q, n) of one head and of orthogonal ones on average, and directions of targets (f, w)."""
    shape = size(head_dim, bandwidth, effective_keys), n_heads * head_dim
    keys, queries, width = rng.normal(size=shape), rng.normal(size=(count, shape[1])), bandwidth_of(bandwidth, head_dim)
    parts = [slice(h * head_dim, (h + 1) * head_dim) for h in range(n_heads)]
    found = np.array([weights(keys[:, part], queries[:, part], width) for part in parts])
    added = noise_sd**2 * ((found[0] ** 2).sum(axis=1).mean() - (found.mean(axis=0) ** 2).sum(axis=1).mean())
    drawn = {"keys": keys, "queries": queries, "directions": rng.normal(size=(shape[1], 32))}
    return drawn | {"first": found[0], "average": found.mean(axis=0), "added": added}


def cross(keys, queries, first, average, added, n_heads, head_dim, bandwidth, effective_keys=64, noise_sd=0.0):
    """Share of a linear target known to all heads at which both errors are equal, linear about its theory.

    The mean over directions of the target is that over features: of a head's own, or of the others.
    """
    missed, left = ((each @ keys - queries) ** 2 for each in (first, average))
    known, unknown = missed[:, :head_dim].mean(), missed[:, head_dim:].mean()
    expected = threshold(n_heads, head_dim, bandwidth, effective_keys, noise_sd)["crossing"]
    slope = 1 - (1 - 1 / (1 + bandwidth_of(bandwidth, head_dim) ** 2)) ** 2
    deviation = (unknown + added - left.mean() - expected * (unknown - known)) / slope
    return {"crossing": expected + deviation, "deviation": deviation}


def threshold(n_heads, head_dim, bandwidth, effective_keys=64, noise_sd=0.0):
    """Closed form of the share, with noise, at leading order in 1/n."""
    n_keys = size(head_dim, bandwidth, effective_keys)
    return {"crossing": alignment_threshold(n_heads, head_dim, bandwidth_of(bandwidth, head_dim), n_keys, noise_sd)}


def wave(
    keys, queries, first, average, added, directions, n_heads, head_dim, bandwidth,
    frequency, share=None, offset=0.0, effective_keys=64, noise_sd=0.0,
):  # fmt: skip
    """Error of aligned minus that of orthogonal heads for a sin(u'x) of variance 1; all heads know a share of |u|²."""
    if share is None:
        share = threshold(n_heads, head_dim, bandwidth, effective_keys, noise_sd)["crossing"] + offset
    known, unknown = (each / np.linalg.norm(each, axis=0) for each in np.split(directions, [head_dim]))
    u = frequency * np.vstack([np.sqrt(share) * known, np.sqrt(1 - share) * unknown])
    values, wanted = (np.sqrt(-2 / np.expm1(-2 * frequency**2)) * np.sin(rows @ u) for rows in (keys, queries))
    aligned, orthogonal = (((each @ values - wanted) ** 2).mean() for each in (first, average))
    return {"gain": (gain := aligned - orthogonal + added), "loss": -gain}
