"""Kernels as their bandwidth goes to 0: the constants of the local-constant expansion, and the risks that they give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln


class KernelConstants(NamedTuple):
    """What the asymptotic risk of a kernel depends on, for one that integrates to 1 on R^p.

    Attributes
    ----------
    second_moment : float
        mu2, the integral of u_1^2 K(u).
    roughness : float
        R, the integral of K(u)^2.
    """

    second_moment: float
    roughness: float


def gaussian_constants(head_dim: int) -> KernelConstants:
    """Constants of the standard normal density on R^p: mu2 = 1, R = (4 pi)^(-p/2).

    Parameters
    ----------
    head_dim : int
        Dimension p of a head, at least 1.

    Returns
    -------
    KernelConstants
        Of the kernel with unit variance.
    """
    return KernelConstants(1.0, float((4 * np.pi) ** (-head_dim / 2)))


def compact_constants(head_dim: int, power: int) -> KernelConstants:
    """Constants of c (1 - |u|^2)_+^r on R^p: mu2 = 1/(p + 2r + 2), R = c^2 pi^(p/2) (2r)! / Gamma(p/2 + 2r + 1).

    Formula :eq:`compact-constants`.

    With c = Gamma(p/2 + r + 1) / (pi^(p/2) r!).  r = 1 is Epanechnikov's kernel (normalised ReLU, sparsemax), 2 the
    biweight, 3 the triweight (arXiv 2601.22766).

    Parameters
    ----------
    head_dim : int
        Dimension p of a head, at least 1.
    power : int
        r, at least 1.

    Returns
    -------
    KernelConstants
        Of the kernel with support |u| <= 1.
    """
    half = head_dim / 2
    log_norm = gammaln(half + power + 1) - half * np.log(np.pi) - gammaln(power + 1)
    log_roughness = 2 * log_norm + half * np.log(np.pi) + gammaln(2 * power + 1) - gammaln(half + 2 * power + 1)
    return KernelConstants(1 / (head_dim + 2 * power + 2), float(np.exp(log_roughness)))


def tuned_risk_ratio(head_dim: int, power: int) -> float:
    """Least asymptotic risk of Gaussian kernels over that of (1 − |u|²)_+^r, each at its own best bandwidth.

    Formula :eq:`tuned-risk`.

    The asymptotic risk b⁴μ₂²A + R/(nbᵖ)·B is least at a value proportional to (μ₂ᵖ R²)^{2/(p+4)}.

    Parameters
    ----------
    head_dim : int
        Dimension p of a head, at least 1.
    power : int
        r of the compact kernel, at least 1.

    Returns
    -------
    float
        At least 1 where the compact kernel is the better one.
    """
    gaussian, compact = gaussian_constants(head_dim), compact_constants(head_dim, power)
    moments = (gaussian.second_moment / compact.second_moment) ** head_dim
    return float((moments * (gaussian.roughness / compact.roughness) ** 2) ** (2 / (head_dim + 4)))
