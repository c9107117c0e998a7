"""Page on the heads of a model: effective heads, correlated pairs, attention sinks, and agreement with theory."""

from pathlib import Path

import numpy as np
import xarray as xr

from simstudy.errors import printable
from simstudy.execution.store import Store
from simstudy.report.figures import image
from simstudy.report.figures.shared import canvas, figure_style
from simstudy.report.labels import with_error
from simstudy.report.page import figure_of, template

SOURCE_NAMES = {"half": "other half of the texts", "constant": "a constant", "exact": "theory, Gaussian logits"}
CAUTION = """Correlated heads may be able to share a pattern. A correlation does not mean that a head is unimportant: \
measure the loss without a head before you remove it."""


def write_heads_page(found: xr.Dataset, store: Store, title: str) -> Path:
    """Write ``heads.nc`` and ``heads.html``, a page without external files, and return the path of the page."""
    store.write_dataset("heads.nc", found)
    layers = []
    for number in range(found.sizes["layer"]):
        layer = found.isel(layer=number)
        observed, theory = layer.sel(source="observed"), layer.sel(source="exact")
        sink = int(np.nanargmax(layer.sink_share.values))
        entry = {
            "module": str(layer.module.values),
            "effective": _of(observed, "effective_heads"),
            "theory": _of(theory, "effective_heads"),
            "correlation": _of(observed, "layer_correlation"),
            "sink": f"{_of(layer.isel(head=sink), 'sink_share')} (head {sink})",
        }
        layers.append(entry)
    with figure_style():
        drawing, grid = canvas(1, 3.0)
        axes, places = grid.flat[0], np.arange(found.sizes["layer"])
        for source, name, mark in (("observed", "observed", "o"), ("exact", "theory", "x")):
            each = found.sel(source=source)
            axes.errorbar(places, each.effective_heads, 1.96 * each.effective_heads_mcse, fmt=mark, label=name)
        axes.set(xlabel="layer", ylabel="effective heads", ylim=(0.0, None), xticks=places[:: 1 + len(places) // 12])
        axes.legend()
        picture = image(drawing)
    caption = "Effective heads of each layer ± 1.96 standard errors, over texts or queries of theory"
    page = template("heads.html").render(
        title=printable(title),
        found=found,
        answer=answer(found),
        caution=CAUTION,
        figure=figure_of("effective-heads", caption, picture),
        layers=layers,
        alike=most_correlated(found, 10),  # all pairs are in heads.nc
        agreement=[(name, *scores(found, source)) for source, name in SOURCE_NAMES.items()],
        reasons=reasons(found),
    )
    return store.files.write("heads.html", page.encode())


def answer(found: xr.Dataset) -> str:
    """Return sentences on effective heads, the most correlated pair, and the largest sink, with errors over texts."""
    n_heads, observed = found.sizes["head_i"], found.sel(source="observed")
    if not found.sizes["pair"]:
        return "Each layer has one head, so that there are no correlations."
    layer, first, second, size = most_correlated(found, 1)[0]
    order = np.argsort(observed.effective_heads.values)
    sink = {name: int(place) for name, place in found.sink_share.fillna(0.0).argmax(...).items()}
    worth = " to ".join(dict.fromkeys(_of(observed.isel(layer=end), "effective_heads") for end in order[[0, -1]]))
    return (
        f"A layer is worth {worth} of its {n_heads} heads (± one standard error over {found.attrs['n_judged']} texts). "
        f"Two heads of a layer correlate at {_of(observed, 'mean_correlation')} on average; most alike are heads "
        f"{first} and {second} of layer {layer}, at {size}. One token gets up to {_of(found.isel(sink), 'sink_share')} "
        f"of a head's weight: head {sink['head']} of layer {sink['layer']}."
    )


def scores(found: xr.Dataset, source: str) -> tuple[str, str]:
    """Return rank correlation and root mean squared error of a source as a prediction of observed correlations."""
    of_source = found.sel(source=source)
    return _of(of_source, "prediction_rank"), _of(of_source, "prediction_error")


def most_correlated(found: xr.Dataset, count: int) -> list[tuple[int, int, int, str]]:
    """Return layer, first head, second head, and correlation with its error of the most correlated pairs."""
    best = found.isel(pair=slice(count))
    correlation = map(with_error, best.pair_correlation.values, best.pair_correlation_mcse.values)
    places = (best[name].values.tolist() for name in ("pair_layer", "pair_head_i", "pair_head_j"))
    return list(zip(*places, correlation, strict=True))


def reasons(found: xr.Dataset) -> list[str]:
    """Return why theory is NaN, as one line for each reason with its layers."""
    layers: dict[str, list[str]] = {}
    for layer, reason in enumerate(found.inapplicable.values.tolist()):
        if reason:
            layers.setdefault(str(reason), []).append(str(layer))
    return [f"{reason} (layer {', '.join(where)})" for reason, where in layers.items()]


def _of(found: xr.Dataset, name: str) -> str:
    return with_error(float(found[name]), float(found[f"{name}_mcse"]))
