"""Builders of a small design and of made-up results for it, for tests of tables, figures and the report.

The numbers are invented, smooth in the factors, and written down here alone: no simulation, no theory.
"""

import hashlib
from typing import Any

import numpy as np
import xarray as xr
from pydantic import TypeAdapter

from simstudy.design.answerable import draws_of
from simstudy.design.document import Design, Figure
from simstudy.design.load import load_design
from simstudy.design.measures import ATTRIBUTES, INDICES, MEASURES, SOURCES, STATISTICS, labelled
from simstudy.verdicts.assemble import coordinates

ANGLES = {
    "title": "Angle against overlap", "exact": True, "settings": {"n_heads": 4},
    "factors": {"regression": ["zero", {"kind": "ridge", "amplitude": 2.0}], "n_keys": [100, 400],
                "angle": [0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0]},
}  # fmt: skip
DESIGN: dict[str, Any] = {
    "study": {"name": "made-up", "title": "A made-up study", "aim": "Does <b>nothing</b> but fill the report."},
    "data": {"n_features": 12}, "heads": {"head_dim": 2, "arrangement": "rotated"}, "estimator": {"bandwidth": 0.5},
    "simulation": {"seed": 7}, "precision": {"relative_mcse": {"ensemble_variance": 0.02}},
    "grids": {
        "angles": ANGLES,
        "many-heads": {
            "settings": {"n_keys": 200, "arrangement": "haar"},
            "factors": {"bandwidth": [0.4, 0.8, "attention"], "n_heads": [1, 2, 4, 8, 16]},
        },
        "single": {"settings": {"n_heads": 1, "arrangement": "aligned"}, "factors": {"n_keys": [50]}},
    },
    "claims": {
        "falls": {
            "kind": "monotone", "grid": "angles", "measure": "ensemble_variance", "x": "angle",
            "statement": "The variance falls with the angle <script>alert(1)</script>.", "direction": "decreasing",
        },
        "agrees": {
            "kind": "agrees_with_theory", "grid": "angles", "measure": "correlation", "margin": 0.05,
            "statement": "Monte Carlo agrees with leading order.", "expected": "contradicted",
        },
        "floor": {"kind": "larger_than", "grid": "many-heads", "measure": "mean_covariance",
                  "statement": "The covariance stays above zero."},
    },
    "figures": {
        "variance-by-angle": {
            "title": "Ensemble variance & angle", "grid": "angles", "y": "ensemble_variance", "x": "angle",
            "hue": "n_keys", "panel": "regression", "y_scale": "log",
        },
        "one-point": {"title": "One cell", "grid": "single", "y": "mse", "x": "n_keys"},
    },
    "profiles": {"quick": {}},
}  # fmt: skip


def stated(kind: str = "curve", **entries: Any) -> Any:
    """A figure as a design states it."""
    return TypeAdapter(Figure).validate_python({"kind": kind, "title": "t", "y": "mse"} | entries)


def with_grid(name: str, grid: dict[str, Any]) -> Design:
    """The design with another grid, or one more."""
    return load_design(DESIGN | {"grids": DESIGN["grids"] | {name: grid}})


def build_results(design: Design) -> xr.Dataset:
    """Return made-up results with the layout that a run gives them."""
    cells = [planned.cell for planned in design.cells]
    counts = np.arange(len(cells))
    arrays: dict[str, Any] = {
        "n_replicates": 2048 - counts % 3, "n_failed": counts % 3, "n_batches": np.full(len(cells), 8),
        "error_over": np.full(len(cells), "over replicates", object), "precision_reached": counts % 10 != 9,
        "n_looks": np.full(len(cells), 2), "look_replicates": np.tile([1024, 2048], (len(cells), 1)),
    }  # fmt: skip
    rows = [_measures(cell.coordinates) for cell in cells]
    theory = [bool(row.pop("_applies")) for row in rows]
    unasked, few = "not asked for: set exact = true in the grid", "too many quadrature nodes"
    exact_reasons = [unasked if not one.exact else "" if one.cell.data.n_keys == 400 else few for one in design.cells]
    wobble = np.sin(np.arange(len(cells)) * 2.3)
    for name in MEASURES:
        leading = np.array([row[name] for row in rows])
        mcse = np.where(np.isnan(leading), np.nan, 0.02 * np.abs(leading) + 1e-6)
        exact = np.where([reason == "" for reason in exact_reasons], 1.01 * leading, np.nan)
        arrays[name] = np.array([leading + mcse * wobble, exact, np.where(theory, leading, np.nan)])
        arrays[f"{name}_numerical_error"] = 1e-9 * np.abs(exact)
        arrays |= {f"{name}_mcse": mcse}
    reasons = ["" if applies else "query far beyond the keys" for applies in theory]
    arrays["inapplicable"] = np.array([[""] * len(cells), exact_reasons, reasons], dtype=object)
    arrays |= {name: np.full((3, len(cells)), np.nan) for name in STATISTICS}  # which nothing here looks at
    arrays |= {f"{name}_mcse": np.full(len(cells), np.nan) for name in STATISTICS}
    arrays["hdi"] = np.array([row["_hdi"] for row in rows])
    arrays["hdi_mcse"] = np.where(np.array(INDICES) == "output", 0.01, 0.0) + 0 * arrays["hdi"]
    coords = coordinates(design) | {"source": list(SOURCES), "index": list(INDICES), "look": [0, 1]}
    attributes = {name: f"some {name}" for name in ATTRIBUTES} | {"profile": design.profile, "design": design.text}
    attributes |= {"study": design.study.name, "title": design.study.title, "aim": design.study.aim}
    attributes |= {"run": "{}", "measures": "{}", "confirmation_text": "", "confirmation_digest": ""}
    for name, text in {"design_hash": design.text, "claims_hash": repr(design.claims)}.items():
        attributes[name] = hashlib.sha256(text.encode()).hexdigest()
    attributes["factors"] = "; ".join(f"{grid}: {', '.join(names)}" for grid, names in design.factors.items())
    return xr.merge([labelled(arrays, coords, attributes), build_verdicts(design)], combine_attrs="override")


def build_verdicts(design: Design) -> xr.Dataset:
    claims, n = [*design.claims.values()], len(design.claims)
    found = {
        "statistic": [f"{claim.measure} at [n_keys = 100]" for claim in claims],
        "estimate": np.linspace(0.5, 0.7, n), "mcse": np.full(n, 0.0123),
        "claimed_lower": np.linspace(-0.1, 0.9, n), "claimed_upper": np.linspace(0.1, 1.1, n),
        "confidence_lower": np.linspace(0.46, 0.66, n), "confidence_upper": np.linspace(0.55, 0.75, n),
        "p_against": np.linspace(1.0, 1e-6, n), "p_in_favour": np.linspace(1e-6, 1.0, n),
    }  # fmt: skip
    arrays = {
        **{f"verdict_{name}" if name in ("estimate", "mcse") else name: column for name, column in found.items()},
        **{f"comparison_{name}": column for name, column in found.items()},
        **{name: [getattr(claim, name) for claim in claims] for name in ("statement", "origin", "these_draws")},
        "verdict": [("supported", "contradicted", "undecided")[i % 3] for i in range(n)],
        "expected_verdict": [claim.expected for claim in claims],
        "representative_statistic": [""] * n,
        "no_verdict_because": ["" if i % 3 < 2 else "too few blocks" for i in range(n)],
        "verdict_draws": [draws_of(claim, design.cells) for claim in claims],
        "claimed_value": np.linspace(0.0, 1.0, n),
        "verdict_comparisons": np.arange(1, n + 1),
        "comparison_claim": list(design.claims),
        "comparison_no_verdict_because": [""] * n,
    }
    return labelled(arrays, coords={"claim": list(design.claims), "comparison": np.arange(n)}, attrs={})


def cells_where(results: xr.Dataset, grid: str = "angles", **levels: Any) -> xr.Dataset:
    keep = results.grid.values == grid
    for name, level in levels.items():
        keep &= results[name].values == level
    return results.isel(cell=np.flatnonzero(keep))


def _measures(c: dict[str, Any]) -> dict[str, Any]:
    n_heads = c["n_heads"]
    sine = np.sin(np.deg2rad(c["angle"] or 0.0)) ** 2
    correlation = 0.5 + 0.5 * (1 - sine) if n_heads > 1 else np.nan
    variance = 8.0 / c["n_keys"] / c["bandwidth"] ** 2
    covariance = variance * correlation
    combined = variance / n_heads + (1 - 1 / n_heads) * covariance if n_heads > 1 else variance
    bias = 0.3 * sine if c["regression"] != "zero" else 0.0
    index = (sine if n_heads > 1 else np.nan) * np.arange(1.0, 1.0 + len(INDICES))
    return {
        "squared_bias": bias, "mean_squared_bias": bias, "mean_variance": variance, "mean_covariance": covariance,
        "ensemble_variance": combined, "mse": bias + combined, "ambiguity": variance - combined,
        "correlation": correlation, "effective_heads": variance / combined, "_hdi": index,
        "_applies": c["bandwidth"] < 1.0 and not (c["n_keys"] == 100 and c["angle"] == 45.0),
    }  # fmt: skip
