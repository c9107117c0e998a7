"""Random instances whose numbers are measured: a record of parameters for each kind.

Imports pydantic and records only.  `simstudy.instances` measures what is stated here, and says how to add a kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.settings.records import Choice, Count, named


class NoInstance(Choice):
    """The estimates of an ensemble are evaluated."""

    kind: Literal["none"]


class NormaliserInstance(Choice):
    """Entmax weights of n_keys random logits beside those of the compact kernel that they should be, and softmax."""

    kind: Literal["normaliser"]
    power: Count = Field(description="power r of entmax, a whole number of at least 1")
    keys: Literal["unit", "raw"] = Field("unit", description='"unit" (queries and keys of length 1) or "raw"')


Instance = Annotated[
    Annotated[NoInstance | NormaliserInstance, Field(discriminator="kind")],
    named("kind"),
]
