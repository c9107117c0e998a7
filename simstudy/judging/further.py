"""How many more units would probably decide a claim: the same engine, as if what was seen were seen more often."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from simstudy.verdicts.estimates import Array, Estimates
from simstudy.verdicts.evidence import Contrast


@dataclasses.dataclass
class Repeated(Estimates):
    """Expected estimates from that multiple of the units, with means and distribution of units as estimated."""

    times: float = 1.0

    def combine(self, terms: dict[int, float]) -> Contrast:
        """Return Σ c_j θ_j with the error that so many units leave."""
        return self._repeated(super().combine(terms))

    def differences(self, chosen: list[int]) -> Contrast:
        """Return θ_i − θ_j with the errors that so many units leave."""
        return self._repeated(super().differences(chosen))

    def covariance(self, chosen: list[int]) -> Array:
        """Return the covariance that so many units leave."""
        return super().covariance(chosen) / self.times

    def _repeated(self, once: Contrast) -> Contrast:
        # There are so many units more already; their skewness is as it was, and the largest share is that of one more.
        root = math.sqrt(self.times)
        return once._replace(
            mcse=once.mcse / root, given=once.given / root, skewness=once.skewness / root,
            largest_share=once.largest_share / self.times, unseen=once.unseen * self.times,
        )  # fmt: skip


def repeated(estimates: Estimates, times: float) -> Repeated:
    """Return the expected estimates from that multiple of the units."""
    return Repeated(**vars(estimates) | {"n_blocks": np.floor(estimates.n_blocks * times), "times": times})
