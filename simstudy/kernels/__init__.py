"""Compiled loops: bare arrays in, bare arrays out, on the device that computes.

No I/O, no labels, no random numbers: a kernel is a deterministic function of its arguments, and the bits for one
replicate do not depend on the replicates that share its call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import simstudy.kernels.settings  # noqa: F401  before all that imports Numba
from simstudy.kernels import nadaraya_watson, projection
from simstudy.kernels.compact import compact_moments
from simstudy.kernels.devices import on_cuda

__all__ = ["compact_moments", "nw_moments", "project"]


def _on_either(cpu: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that calls this one, or where a GPU computes its namesake in `cuda`."""

    @functools.wraps(cpu)
    def call(*arguments: Any) -> Any:
        if on_cuda():
            from simstudy.kernels import cuda

            return getattr(cuda, cpu.__name__)(*arguments)
        return cpu(*arguments)

    return call


project = _on_either(projection.project)
nw_moments = _on_either(nadaraya_watson.nw_moments)
