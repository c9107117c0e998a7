"""One head that is tuned at some number of keys and used at others: what is stated, and which numbers are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.instance import Instance
from simstudy.design.settings.records import MAX_COUNT, Impossibility, NonNegative, Positive, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads

Shares = Annotated[tuple[NonNegative, ...], Field(strict=False, min_length=1, max_length=32)]


class TemperedHeadInstance(Instance):
    """One softmax head of head_dim whose temperature is best at tuned_at keys, times bandwidth² at n_keys.

    Keys are uniform on the unit sphere or standard normal, noise has variance 1, and the target is random: harmonics
    on the sphere, or a linear function.  Its best temperatures are those of exact theory; risks are measured.
    """

    kind: Literal["tempered_head"]
    tuned_at: Annotated[int, Field(ge=2, le=MAX_COUNT)] = Field(description="number of keys of the best temperature")
    keys: Literal["unit", "gaussian"] = Field("unit", description='"unit" (of one length) or "gaussian"')
    signal: Positive = Field(1.0, description="variance of the target over keys; that of the noise is 1")
    shares: Shares = Field((1.0,), description="shares of harmonics of degree 1, 2, … in that variance; unit keys")
    query: Positive = Field(1.0, description="length of the query over √head_dim; Gaussian keys")

    uses: ClassVar[tuple[str, ...]] = ("n_keys", "head_dim", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "tempered_risk": Quantity(
            "Y^2", "mean squared error of the head, given its logits: averaged over noise, targets and what keys are "
            "across the query", "E[(sum_i w_i Y_i - m(q))^2 | logits], Var(Y | X) = 1",
        ),
        "excess_risk": Quantity(
            "%", "risk above that at the best temperature for as many keys, on the same data, in percent of the least "
            "risk by exact theory", "100 (risk - risk at the best temperature) / least risk",
        ),
    }  # fmt: skip
    rests_on: ClassVar[tuple[str, ...]] = ("temperatures.py",)
    words: ClassVar[dict[str, Setting]] = {
        "tuned_at": Setting("keys at which the temperature is best", "n₀"),
        "signal": Setting("signal-to-noise ratio"),
        "query": Setting("length of the query over √p"),
    }

    @property
    def idle(self) -> dict[str, str]:
        """Parameters that the distribution of keys has no use for."""
        return {"query": 'keys = "unit"'} if self.keys == "unit" else {}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """A sphere has two dimensions or more, a target some variance, and a Gaussian one is linear."""
        if data.n_keys < 2:
            yield "n_keys", "one key has all weight at any temperature; state 2 or more"
        if self.keys == "unit" and heads.head_dim < 2:
            yield "head_dim", 'needs 2 or more dimensions for keys = "unit"'
        if not sum(self.shares) or (self.keys == "gaussian" and len(self.shares) > 1):
            yield "instance", 'shares must not all be 0, and are those of keys = "unit"; remove shares'
