"""Ant colonies as the code of their authors has them: what is stated, and which numbers are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.instance import Instance
from simstudy.design.settings.records import Impossibility, Positive, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class PublishedColonyInstance(Instance):
    """A colony of n_heads ants that choose among sites in at most n_keys steps (arXiv 2603.20328, repository).

    Differences from learner = "ant_colony": there is no pheromone at the start, and ants choose any site with the same
    probability until there is.  Qualities of sites are equally spaced from 10 down to 10 − gap.
    """

    kind: Literal["published_colony"]
    sites: Annotated[int, Field(ge=2, le=2**16)] = Field(5, description="number of sites, at least 2")
    gap: Positive = Field(2.0, description="quality of the best site less that of the worst")
    exploration: Probability = Field(0.3, description="probability that an ant ignores the others, in [0, 1]")
    quorum: Positive = Field(20.0, description="recruitment at which the colony decides")
    reinforcement: Positive = Field(0.1, description="pheromone laid for one unit of recruitment")
    evaporation: Probability = Field(0.05, description="share of pheromone lost in a step, in [0, 1]")
    enthusiasm: Positive = Field(0.2, description="recruitment for one unit of quality above the mean")

    uses: ClassVar[tuple[str, ...]] = ("n_keys", "n_heads", "noise_sd")
    quantities: ClassVar[dict[str, Quantity]] = {
        "site_correlation": Quantity(
            "1", "correlation over sites of the estimates of two ants in one colony, 0 for a site that an ant never "
            "saw, averaged over pairs of ants that saw two sites or more", "mean_{a!=b} corr_s(P_as, P_bs)",
        ),
        "signal_correlation": Quantity(
            "1", "the same of what the ants would estimate without noise: the qualities of the sites that each saw",
            "mean_{a!=b} corr_s(Q_s [a saw s], Q_s [b saw s])",
        ),
        "error_correlation": Quantity(
            "1", "the same of the errors of their estimates, 0 for a site that an ant never saw",
            "mean_{a!=b} corr_s(P_as - Q_s [a saw s], P_bs - Q_s [b saw s])",
        ),
        "best_site_share": Quantity(
            "1", "probability that the colony decides for the best site", "P(argmax_s r_s = 1)", counted=True
        ),
        "colony_steps": Quantity("steps", "steps until the colony decides"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "sites": Setting("sites"),
        "gap": Setting("gap between the qualities of sites"),
        "exploration": Setting("probability of exploring"),
    }

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """A correlation of ants needs two of them."""
        if heads.n_heads < 2:
            yield "n_heads", "a single ant is correlated with no other; use at least 2"
