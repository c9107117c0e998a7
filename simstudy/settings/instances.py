"""Random instances whose numbers are measured: a record of parameters for each kind.

Imports pydantic and records only.  `simstudy.instances` measures what is stated here, and says how to add a kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.settings.records import Choice, Count, Degrees, Positive, named


class NoInstance(Choice):
    """The estimates of an ensemble are evaluated."""

    kind: Literal["none"]


class NormaliserInstance(Choice):
    """Entmax weights of n_keys random logits beside those of the compact kernel that they should be, and softmax."""

    kind: Literal["normaliser"]
    power: Count = Field(description="power r of entmax, a whole number of at least 1")
    keys: Literal["unit", "raw"] = Field("unit", description='"unit" (queries and keys of length 1) or "raw"')


class KqSvdInstance(Choice):
    """Scores K Qᵀ of n_keys keys and queries of dimension head_dim compressed to a rank (arXiv 2512.05916).

    Both have standard deviations from 1 to ``smallest`` along orthonormal directions; the leading half of those of the
    queries is turned by ``angle`` out of the leading half of those of the keys.
    """

    kind: Literal["kq_svd"]
    rank: Count = Field(description="dimensions that are kept, at least 1 and at most head_dim")
    method: Literal["scores", "keys", "stacked"] = Field("scores", description='"scores", "keys" or "stacked"')
    angle: Degrees = Field(
        0.0, description="degrees in [0, 90] from the leading directions of keys to those of queries"
    )
    scale: Positive = Field(1.0, description="a positive factor c: keys times c, queries divided by c")
    smallest: Positive = Field(0.1, description="smallest standard deviation, the largest being 1")


Instance = Annotated[
    Annotated[NoInstance | NormaliserInstance | KqSvdInstance, Field(discriminator="kind")],
    named("kind"),
]
