"""Where a claim comes from: counted apart, as a count over all claims would mix what is asserted with what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

ABSTRACT: dict[str, str] = {
    "abstract C1": "softmax attention of one head is the Nadaraya-Watson estimator",
    "abstract C2": "multi-head attention is an ensemble of such estimators, each in a projection subspace of its own",
    "abstract C3": "its mean squared error splits into bias, variance and covariance",
    "abstract C4": "variance falls with the decorrelation of head outputs, and not with the number of heads alone",
    "abstract C5": "principal angles govern decorrelation: orthogonal heads reduce variance most, aligned not",
    "abstract C6": "the mean squared error falls as the Head Diversity Index rises",
    "abstract C7": "that explains why heads specialise",
    "abstract C8": "at a fixed budget of dimensions theory finds the best number and dimension of heads",
    "abstract C9": "the best dimension of a head grows like the logarithm of the number of training pairs",
    "abstract C10": "the best number of heads grows nearly linearly in the budget",
    "abstract C11": "one law of weighting and decorrelation holds for attention and for other ensembles",
}
"""What the abstract of Fokoué (arXiv 2605.20271) asserts, in its order and in our words."""

OTHERS: dict[str, str] = {
    "related paper": "what the authors of a related system assert of it",
    "consequence": "what follows from theory: sizes, conditions, exceptions",
    "negative control": "what fails because a condition is taken away: it shows that the test can contradict",
    "foil": "a rival statement that one might believe, held against the facts",
    "identity": "what holds by algebra or by construction: it checks the simulator",
    "unstated": "the design does not say",
}

ORIGINS: dict[str, str] = ABSTRACT | OTHERS
"""Every origin that a design may state, and what it means."""

if TYPE_CHECKING:  # a type checker cannot follow alternatives that are computed
    Origin = str
else:
    Origin = Literal[tuple(ORIGINS)]


def kind_of(origin: str) -> str:
    """Return the kind of an origin: "abstract" for each claim of the abstract, else the origin itself."""
    return "abstract" if origin in ABSTRACT else origin
