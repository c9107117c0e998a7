"""Heads that are trained to solve new linear tasks in context: what is stated, and which numbers are measured."""

from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Positive, Quantity, Setting
from simstudy.design.settings.tables import Instance


class InContextHeadsInstance(Instance):
    """Softmax heads with one number in W_Q W_K' and one in W_O, trained on prompts of linear tasks (arXiv 2503.12734).

    A prompt has n_keys pairs (x, y) and a query, Gaussian in n_features dimensions, and a task of its own:
    y = b'x + noise, b ~ N(0, I/n_features).  Head h adds o_h times the softmax mean of y with logits k_h x'query.
    Stochastic gradient descent on the squared error, over 8 new prompts in each step, starts at N(0, 0.1²) numbers.
    """

    kind: Literal["in_context_heads"]
    steps: Count = Field(200, description="number of steps, at least 1")
    rate: Positive = Field(0.1, description="length of the first step per unit of the gradient, falling linearly to 0")
    outputs: Literal["any", "positive"] = Field("any", description='"any", or "positive": no output weight below 0')

    uses = ("n_keys", "n_features", "n_heads", "noise_sd")
    quantities: ClassVar[dict[str, Quantity]] = {
        "both_signs": Quantity("share of training runs after which output weights have both signs",
            "1(min_h o_h < 0 < max_h o_h)", counted=True),
        "output_sum": Quantity("size of the sum of trained output weights, over the sum of their sizes",
            "|sum_h o_h| / sum_h |o_h|"),
        "matched_signs": Quantity("share of trained heads whose output weight has the sign of their logits",
            "mean_h 1(o_h k_h > 0)"),
        "in_context_risk": Quantity("mean squared error of the sum of trained heads on new tasks",
            "E (sum_h f_h(query) - b'query)^2", unit="Y^2"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"outputs": Setting("output weights")}
