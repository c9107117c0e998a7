"""Entmax as a compact kernel of adaptive bandwidth: what is stated, and which numbers are measured."""

from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Quantity, Setting
from simstudy.design.settings.tables import Instance


class NormaliserInstance(Instance):
    """Entmax weights of n_keys random logits beside those of the compact kernel that they should be, and softmax."""

    kind: Literal["normaliser"]
    power: Count = Field(description="power r of entmax, a whole number of at least 1")
    keys: Literal["unit", "raw"] = Field("unit", description='"unit" (queries and keys of length 1) or "raw"')

    uses = ("n_keys", "n_features", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "kernel_gap": Quantity("largest difference between a weight of entmax and that of the compact kernel of "
            "adaptive bandwidth that its threshold gives",
            "max_i |w_i - w'_i|, w' of (1 - |q - k|^2/h^2)_+^r, h^2 = |q|^2 + mean |k|^2 - 2 r g tau"),
        "softmax_distance": Quantity("total variation between the weights of entmax and of softmax",
            "sum_i |w_i - v_i| / 2"),
        "support_share": Quantity("share of keys to which entmax gives any weight", "#{i: w_i > 0} / n", counted=True),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"power": Setting("power", "r")}
