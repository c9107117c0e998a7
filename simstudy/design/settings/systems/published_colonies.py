"""Ant colonies as the code of their authors has them: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Impossibility, NonNegative, Positive, Probability, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads, Instance


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

    uses = ("n_keys", "n_heads", "noise_sd")
    quantities: ClassVar[dict[str, Quantity]] = {
        "site_correlation": Quantity("correlation over sites of the estimates of two ants in one colony, 0 for a site "
            "that an ant never saw, averaged over pairs of ants that saw two sites or more",
            "mean_{a!=b} corr_s(P_as, P_bs)"),
        "signal_correlation": Quantity("the same of what the ants would estimate without noise: the qualities of the "
            "sites that each saw", "mean_{a!=b} corr_s(Q_s [a saw s], Q_s [b saw s])"),
        "error_correlation": Quantity("the same of the errors of their estimates, 0 for a site that an ant never saw",
            "mean_{a!=b} corr_s(P_as - Q_s [a saw s], P_bs - Q_s [b saw s])"),
        "best_site_share": Quantity("probability that the colony decides for the best site", "P(argmax_s r_s = 1)",
            counted=True),
        "colony_steps": Quantity("steps until the colony decides", unit="steps"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "gap": Setting("gap between the qualities of sites"),
        "exploration": Setting("probability of exploring"),
    }
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_heads": (2, "a single ant is correlated with no other")}


class AcarInstance(Instance):
    """n_keys waves of n_heads ants that choose one of two sites, ACAR (arXiv 2604.00038).

    Qualities are 10 and 10 − 5γ.  The paper states that the colony is right with probability 1 − exp(−γ²T/2) or more.
    """

    kind: Literal["acar"]
    weakness: Annotated[float, Field(gt=0, le=2)] = Field(
        0.2, description="γ in (0, 2], by which the paper labels its curves: the qualities differ by 5γ"
    )
    constant: Positive = Field(0.5, description="c of the bound 1 − exp(−cγ²T), 1/2 in the paper")
    evaporation: Probability = Field(0.1, description="share of pheromone lost in a wave, in [0, 1]")
    reinforcement: Positive = Field(0.5, description="pheromone laid for one unit of observed quality")
    heuristic: NonNegative = Field(1.0, description="power of the true quality in the choice of a site, β")
    observation: Literal["wave", "ant"] = Field(
        "wave",
        description='"wave" (as coded: one error for all ants at a site, trail and observation with a floor) or "ant" '
        "(as described: one error for each)",
    )

    uses = ("n_keys", "n_heads", "noise_sd")
    quantities: ClassVar[dict[str, Quantity]] = {
        "acar_share": Quantity("probability that the colony decides for the better site", counted=True),
        "acar_bound_excess": Quantity("acar_share less the bound of the paper, with the γ that labels its curves",
            "acar_share - 1 + exp(-c g^2 T)", counted=True),
        "acar_first_bound_excess": Quantity("the same with γ = the probability that an ant of the first wave chooses "
            "the better site, less 1/2", "acar_share - 1 + exp(-c (P(first ant correct) - 1/2)^2 T)", counted=True),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "weakness": Setting("weakness", "γ"),
        "constant": Setting("constant of the bound", "c"),
        "heuristic": Setting("power of the true quality", "β"),
    }


class BoostingAndAntsInstance(Instance):
    """AdaBoost of n_heads stumps on n_keys points of n_features, beside ACAR: table 1 of arXiv 2604.00038.

    Labels are the sign of x₁ + x₂x₃ + x₃²/2; a share of those for training is flipped.  The colonies have sites of
    quality 10 and 9, 8 ants, 15 waves, and observation errors of 12 times that share (0.01 at least).
    """

    kind: Literal["boosting_and_ants"]
    label_noise: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.0, description="share in [0, 1/2) of the training labels that are flipped"
    )
    colonies: Count = Field(32, description="colonies for each data set: fewer leave more Monte Carlo error")

    uses = ("n_keys", "n_features", "n_heads")
    quantities: ClassVar[dict[str, Quantity]] = {
        "coded_accuracy": Quantity("accuracy of AdaBoost as coded on 500 clean points: weights of stumps go along the "
            "points, so that stumps vote with equal weights, and a tie is an error",
            "mean_i [sign sum_m h_m(x_i) = y_i]"),
        "weighted_accuracy": Quantity("accuracy of AdaBoost with the weighted vote on the same points",
            "mean_i [sign sum_m a_m h_m(x_i) = y_i]"),
        "ants_share": Quantity("probability that a colony decides for the better site", counted=True),
        "ants_less_coded": Quantity("ants_share - coded_accuracy"),
        "ants_less_weighted": Quantity("ants_share - weighted_accuracy"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"label_noise": Setting("share of flipped labels")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Labels need three features, thresholds two points; weights are recycled as the class says."""
        if 500 % heads.n_heads:
            yield "n_heads", f"must divide 500, the points of the test, for equal weights as coded; not {heads.n_heads}"
        if data.n_features < 3 or data.n_keys < 2:
            yield "instance", f"needs n_features ≥ 3 and n_keys ≥ 2, not {data.n_features} and {data.n_keys}"


class GaclInstance(Instance):
    """Generations of waves of ants, GACL (arXiv 2604.09677): two runs in each replicate.

    Qualities of the five sites are 10, 7, 5, 4 and 3.  Between generations pheromone is scaled as a whole.
    """

    kind: Literal["gacl"]
    ants: Count = Field(100, description="number of ants, at least 1")
    generations: Annotated[int, Field(ge=6)] = Field(50, description="number of generations, at least 6")
    waves: Count = Field(10, description="waves of ants in a generation, at least 1")
    evaporation: Probability = Field(0.3, description="share of pheromone lost in a wave, in [0, 1]")
    generation_rate: Probability = Field(0.1, description="share of pheromone lost between generations, in [0, 1]")
    reinforcement: Positive = Field(0.5, description="pheromone laid for one unit of observed quality")

    uses = ("noise_sd",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "gacl_variance": Quantity("variance over runs of the mean quality observed in the last wave of a generation, "
            "averaged over generations", "mean_g (F_g - F'_g)^2 / 2 of two runs"),
        "scaled_gacl_variance": Quantity("the same after each run is scaled by itself to [0, 1], as the authors plot "
            "it", "mean_g (c_g - c'_g)^2 / 2, c = (max F - F) / (max F - min F), or 1/2 where F is constant"),
        "gacl_fitness": Quantity("mean quality observed in the last six generations of a run"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "ants": Setting("ants", "N"),
        "generation_rate": Setting("share of pheromone lost between generations"),
    }
