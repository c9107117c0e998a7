"""The page of the heads of a transformer: whether theory tells which agree, and how many they are worth."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.stats import t as student

from simstudy.errors import printable
from simstudy.execution.store import Store
from simstudy.report.figures import image
from simstudy.report.figures.shared import canvas, own_style
from simstudy.report.labels import INDEX_NAMES, number, with_error
from simstudy.report.page import figure_of, template

SOURCE_NAMES = {
    "observed": "observed",
    "constant": "a constant",
    "half": "other half of the texts",
    "angles": "angles of key subspaces",
    "leading": "leading order",
    "exact": "exact, Gaussian logits",
    "redrawn": "tokens redrawn",
}
CAUTION = (
    "Heads that are alike may be able to share a pattern. Likeness does not say that a head is unimportant: measure "
    "the loss without a head before you remove it (simstudy.transformers.interventions)."
)
_PREDICTIONS = [source for source in SOURCE_NAMES if source != "observed"]
_THEORIES = ("angles", "leading", "exact")
_SHOWN = ("angles", "exact", "half")
"""What predicts correlations in the panels of a figure."""
_MAPPED = ("observed", "exact", "half", "angles", "leading", "redrawn")
_LISTED = 10
"""Pairs of heads that the page lists; all are in the data."""
_BAND = 2.0
"""Standard deviations on either side of the mean of random subspaces that are called usual."""


def write_heads_page(found: xr.Dataset, store: Store, title: str) -> Path:
    """Write ``heads.nc`` and ``heads.html``, a page that needs nothing but itself, and return the path of the page."""
    store.write_dataset("heads.nc", found)
    with own_style():
        drawing, grid = canvas(len(_SHOWN), 3.0)
        for axes, source in zip(grid.flat, _SHOWN, strict=False):
            _agreement(axes, found, source)
            axes.set_title(title)
        picture = image(drawing, "png")
    agreement = "Correlation of two heads on other sequences, predicted and observed; each layer has its colour"
    return store.write_text(
        "heads.html",
        template("heads.html").render(
            title=printable(title),
            sizes={name: found.sizes[name] for name in ("layer", "head")},
            counts={name: found.attrs[name] for name in ("n_judged", "n_fitted")},
            answer=answer(found),
            caution=CAUTION,
            alike=[(*pair, _sizes(found, *pair[:3])) for pair in most_alike(found, _LISTED)],
            contributions="effective_contributions" in found,
            agreement=[(SOURCE_NAMES[source], *scores(found, source)) for source in _PREDICTIONS],
            figure=figure_of("agreement", agreement, picture),
            maps=_maps(found),
            sources=list(SOURCE_NAMES.values()),
            layers=[_layer(found.isel(layer=layer)) for layer in range(found.sizes["layer"])],
            indices=[INDEX_NAMES[name] for name in found["index"].values.tolist()],
            usual=[
                f"{number(mean - width, 3)} to {number(mean + width, 3)}"
                for mean, width in zip(found.hdi_haar_mean.values, _BAND * found.hdi_haar_deviation.values, strict=True)
            ],
            diversity=[_diversity(found, layer) for layer in range(found.sizes["layer"])],
            reasons=_reasons(found),
            compared=[said for source in _THEORIES if (said := compared(found, source))],
        ),
    )


def _agreement(axes: Axes, found: xr.Dataset, source: str) -> None:
    """Draw observed against predicted correlations of all pairs of heads."""
    predicted, observed, layer = _pairs(found, source)
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    axes.scatter(predicted, observed, c=layer, cmap="viridis", s=9)
    rank, error = scores(found, source)[1:]
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=SOURCE_NAMES[source], ylabel="observed correlation")
    axes.axhline(
        found.weight_correlation.sel(source="constant")[0, 0, -1], color="#999999", linewidth=0.8, linestyle=":"
    )
    # Out of the layout: a panel would shrink to make room for a text that it does not hold.
    text = f"rank correlation {rank}\nerror {error}"
    axes.annotate(text, (0.03, 0.97), fontsize=8, va="top").set_in_layout(False)


def scores(found: xr.Dataset, source: str) -> tuple[str, str, str]:
    """Return of a source: pairs of heads that it speaks of, rank correlation with what is observed, and error."""
    known = np.isfinite(_pairs(found, source)[0])
    rank, error = (_of(found.sel(source=source), name) for name in ("prediction_rank", "prediction_error"))
    return f"{known.sum()} of {len(known)}", rank, error


def compared(found: xr.Dataset, source: str) -> str:
    """Say in one sentence whether a theory predicts better than a constant."""
    own = found.sel(source=source)
    gain, error = float(own.prediction_gain), float(own.prediction_gain_mcse)
    if not np.isfinite(gain):
        return ""
    name = SOURCE_NAMES[source][0].upper() + SOURCE_NAMES[source][1:]
    bound = float(student.ppf(0.975, found.attrs["n_judged"] - 1)) * error
    said = (
        f"root mean squared error {with_error(abs(gain), error)} {'below' if gain > 0 else 'above'} that of a constant"
    )
    if abs(gain) <= bound:
        return f"{name}: not told apart from a constant ({said})."
    return f"{name}: better than a constant ({said})." if gain > 0 else f"{name}: lost to a constant ({said})."


def answer(found: xr.Dataset) -> str:
    """Say in two sentences how correlated the heads are, and how many they are worth, with errors over sequences."""
    n_heads, observed = found.sizes["head_i"], found.sel(source="observed")
    if n_heads == 1:
        return "Each layer has one head, which agrees with no other."
    layer, first, second, size = most_alike(found, 1)[0]
    order = np.argsort(observed.effective_heads.values)
    worth = " to ".join(dict.fromkeys(_of(observed.isel(layer=end), "effective_heads") for end in order[[0, -1]]))
    return (
        f"Two heads of a layer correlate at {_of(observed, 'mean_correlation')} on average; most alike are heads "
        f"{first} and {second} of layer {layer}, at {size}. A layer is worth {worth} of its {n_heads} heads "
        f"(± one standard error over {found.attrs['n_judged']} sequences)."
    )


def _of(found: xr.Dataset, name: str) -> str:
    return with_error(float(found[name]), float(found[f"{name}_mcse"]))


def most_alike(found: xr.Dataset, count: int) -> list[tuple[int, int, int, str]]:
    """Return layer, first and second head, and correlation with its error, of the pairs that are most alike."""
    best = found.isel(pair=slice(count))
    correlation = map(with_error, best.pair_correlation.values, best.pair_correlation_mcse.values)
    places = (best[name].values.tolist() for name in ("pair_layer", "pair_head_i", "pair_head_j"))
    return list(zip(*places, correlation, strict=True))


def _sizes(found: xr.Dataset, layer: int, *heads: int) -> str:
    """Sizes of what two heads add, over that of the mean head of their layer."""
    if "output_size" not in found:
        return ""
    size = found.output_size[layer].values
    return " and ".join(number(float(size[head] / size.mean()), 2) for head in heads)


def _pairs(found: xr.Dataset, source: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predicted and observed correlations of every two heads of one layer, and the layer."""
    first, second = np.triu_indices(found.sizes["head_i"], 1)
    values = (found.weight_correlation.sel(source=each).values[:, first, second] for each in (source, "observed"))
    predicted, observed = values
    layers = np.repeat(np.arange(len(observed)), observed.shape[1])
    return predicted.ravel(), observed.ravel(), layers


def _layer(layer: xr.Dataset) -> dict[str, Any]:
    errors = zip(layer.effective_heads.values, layer.effective_heads_mcse.values, strict=True)
    own = layer.sel(source="observed")
    return {
        "correlation": _of(own, "layer_correlation"),
        "effective": [
            with_error(float(value), float(error)) if error else number(float(value), 3) for value, error in errors
        ],
        "contributions": _of(own, "effective_contributions") if "effective_contributions" in own else "",
        "variance": _range(layer.logit_variance),
        "rank": _range(layer.logit_rank),
        "sink": _range(layer.sink_share),
        "apparent": _range(layer.apparent_dimension),
        "gaps": _range(layer.gap_dimension.isel(gaps=0)),
        "lengths": _range(layer.key_length_variation),
    }


def _maps(found: xr.Dataset) -> dict[str, Any]:
    """Correlations of all two heads of each layer, to three digits, as plain data without NaN."""
    pairs = np.triu_indices(found.sizes["head_i"], 1)
    columns = {source: found.weight_correlation.sel(source=source).values[:, *pairs] for source in _MAPPED}
    return {
        "heads": found.sizes["head_i"],
        "predictions": [(source, SOURCE_NAMES[source]) for source in _MAPPED[1:]],
        "values": {
            source: [[round(value, 3) if np.isfinite(value) else None for value in row] for row in values.tolist()]
            for source, values in columns.items()
        },
    }


def _range(values: xr.DataArray) -> str:
    ends = (number(float(values.min()), 2), number(float(values.max()), 2))
    return " to ".join(dict.fromkeys(ends))


def _diversity(found: xr.Dataset, layer: int) -> list[tuple[str, str]]:
    """Indices of one layer, and where each lies beside those of random subspaces."""
    values = found.hdi.values[layer]
    distance = (values - found.hdi_haar_mean.values) / np.maximum(found.hdi_haar_deviation.values, 1e-300)
    words = np.select([distance < -_BAND, distance > _BAND], ["less", "more"], "")
    return [(number(float(value), 3), str(word)) for value, word in zip(values, words, strict=True)]


def _reasons(found: xr.Dataset) -> list[str]:
    """Where theories are blank: layers that share a reason in one line."""
    layers: dict[str, list[str]] = {}
    for source in _PREDICTIONS:
        for layer, reason in enumerate(found.inapplicable.sel(source=source).values.tolist()):
            if reason:
                layers.setdefault(f"{SOURCE_NAMES[source]}: {reason}", []).append(str(layer))
    return [f"{reason} (layer {', '.join(where)})" for reason, where in layers.items()]
