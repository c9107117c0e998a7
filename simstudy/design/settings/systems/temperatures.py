"""Heads at a temperature: tuned at some number of keys, with a partner or a sink, or on shared keys: what is stated."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import (
    Count,
    Impossibility,
    NonNegative,
    Part,
    Positive,
    Quantity,
    Setting,
    Several,
    Share,
)
from simstudy.design.settings.tables import Data, Heads, Instance

Shares = Annotated[tuple[NonNegative, ...], Field(strict=False, min_length=1, max_length=32)]


class TemperedHeadInstance(Instance):
    """One softmax head of head_dim whose temperature is best at tuned_at keys, times bandwidth² at n_keys.

    Keys are uniform on the unit sphere or standard normal, noise has variance 1, and the target is random: harmonics
    on the sphere, or a linear function.  Its best temperatures are those of exact theory; risks are measured.
    """

    kind: Literal["tempered_head"]
    tuned_at: Several = Field(description="number of keys of the best temperature")
    keys: Literal["unit", "gaussian"] = Field("unit", description="unit is of one length:")
    signal: Positive = Field(1.0, description="variance of the target over keys; that of the noise is 1")
    shares: Shares = Field((1.0,), description="shares of harmonics of degree 1, 2, … in that variance; unit keys")
    query: Positive = Field(1.0, description="length of the query over √head_dim; Gaussian keys")

    uses = ("n_keys", "head_dim", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "tempered_risk": Quantity("mean squared error of the head, given its logits: averaged over noise, targets and "
            "what keys are across the query", "E[(sum_i w_i Y_i - m(q))^2 | logits], Var(Y | X) = 1", unit="Y^2"),
        "excess_risk": Quantity("risk above that at the best temperature for as many keys, on the same data, in "
            "percent of the least risk by exact theory", "100 (risk - risk at the best temperature) / least risk",
            unit="%"),
    }  # fmt: skip
    rests_on = ("temperatures.py",)
    words: ClassVar[dict[str, Setting]] = {
        "tuned_at": Setting("keys at which the temperature is best", "n₀"),
        "signal": Setting("signal-to-noise ratio"),
        "query": Setting("length of the query over √p"),
    }
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_keys": (2, "one key has all weight at any temperature")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """A sphere has two dimensions or more, a target some variance, and a Gaussian one is linear."""
        if self.keys == "unit" and heads.head_dim < 2:
            yield "head_dim", 'needs 2 or more dimensions for keys = "unit"'
        if not sum(self.shares) or (self.keys == "gaussian" and len(self.shares) > 1):
            yield "instance", 'shares must not all be 0, and are those of keys = "unit"; remove shares'


class HeadPairInstance(Instance):
    """A head less a share of a partner, over what is left: (f₁ − λ f₂)/(1 − λ), on keys of one length.

    Differential attention (arXiv 2410.05258).  The partner is aligned (the same query) or has an orthogonal query.
    Both may have a key of value 0, a sink, and a gate: a factor on what they give.  Noise has variance 1, the target is
    a random harmonic or a sum of them.
    """

    kind: Literal["head_pair"]
    weight: Share = Field(0.0, description="λ, below 1")
    first: Positive = Field(1.0, description="logits of the head, over those that are best for one head")
    second: Positive = Field(1.0, description="the same of its partner")
    partner: Literal["aligned", "orthogonal"] = "aligned"
    sink: NonNegative = Field(0.0, description="mass of a key of value 0, over the expected mass of all keys")
    gate: Part = Field(1.0, description="factor on what the heads give, in (0, 1]")
    signal: Positive = Field(1.0, description="variance of the target over keys; that of the noise is 1")
    shares: Shares = Field((1.0,), description="shares of harmonics of degree 1, 2, … in that variance")

    uses = ("n_keys", "head_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "pair_risk": Quantity("mean squared error of the pair, given its logits: averaged over noise, targets and what "
            "keys are across the queries", "E[(sum_i w_i Y_i - m(q))^2 | logits], w = (w_1 - λ w_2)/(1 - λ)",
            unit="Y^2"),
        "pair_noise": Quantity("variance that noise gives the pair, times keys", "n sum_i w_i^2"),
    }  # fmt: skip
    rests_on = ("temperatures.py",)
    words: ClassVar[dict[str, Setting]] = {
        "weight": Setting("weight of the partner", "λ"),
        "sink": Setting("mass of the sink"),
    }
    least: ClassVar[dict[str, tuple[int, str]]] = {
        "n_keys": (2, "one key has all weight"), "head_dim": (3, "two orthogonal queries need more dimensions"),
    }  # fmt: skip

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Of two orthogonal queries known targets are linear."""
        if not sum(self.shares) or (self.partner == "orthogonal" and len(self.shares) > 1):
            remedy = 'with partner = "orthogonal" the target is linear: remove shares'
            yield "instance", f"shares must not all be 0; {remedy}"


class GroupedHeadsInstance(Instance):
    """Dot-product heads of random queries of length √p on Gaussian keys, where groups of heads share their keys.

    As many groups as heads are multi-head attention; one group is multi-query attention.  Values are noise.
    """

    kind: Literal["grouped_heads"]
    heads: Annotated[int, Field(ge=2, le=64)] = Field(description="number of heads, from 2 to 64")
    groups: Count = Field(description="number of key groups, which divides heads")

    uses = ("n_keys", "head_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "grouped_noise": Quantity("variance that noise gives the average of heads, times keys",
            "n sum_i (mean_h w_hi)^2"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"groups": Setting("key groups")}
    least: ClassVar[dict[str, tuple[int, str]]] = {"head_dim": (2, "queries need directions")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """All groups have the same number of heads."""
        if self.heads % self.groups:
            yield "instance", f"groups = {self.groups} does not divide heads = {self.heads}"
