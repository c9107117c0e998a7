"""Names of settings and measures for readers, and numbers with their error."""

import math
import re
from decimal import Decimal
from typing import Any

from simstudy.design.document import LEVEL
from simstudy.design.measures import VARIABLES, setting

OVERVIEW = "overview"
"""Name of the figure of a study that declares no figure."""
RESOLUTION = 150
"""Pixels per inch of PNG files."""
COVERAGE = 1.96
"""Half-width of an error bar in MCSE: a 95 % interval."""
UNDEFINED = "–"

THEORY_NAMES: dict[str, str] = {"exact": "exact", "leading": "leading order"}

INDEX_NAMES: dict[str, str] = {
    "chordal": "chordal: mean sin² of angles",
    "participation": "participation ratio [heads]",
    "entropy": "spectral entropy [heads]",
    "logdet": "logdet: −log ρ at x = 0",
    "volume": "volume: product of sines",
    "vendi": "Vendi score [heads]",
    "min_angle": "min_angle: sine of smallest",
    "output": "output: 1 − correlation",
    "output_rank": "output: effective rank [heads]",
    "output_determinant": "output: mean eigenvalue, geom.",
    "output_participation": "output: participation [heads]",
    "disagreement_values": "disagreement of values",
    "disagreement_positions": "disagreement of positions",
    "disagreement_outputs": "disagreement of outputs",
}


def setting_name(name: str) -> str:
    """Return a setting as an axis or legend names it: ``bandwidth b``, ``angle [degrees]``."""
    words, symbol, unit = setting(name)
    return " ".join(part for part in (words, symbol, f"[{unit}]" if unit else "") if part)


def measure_name(name: str) -> str:
    """Return a measure as an axis names it, with its unit: ``ensemble variance [Y²]``."""
    unit = VARIABLES[name].unit.replace("^2", "²") if name in VARIABLES else "1"
    words = {"mse": "mean squared error"}.get(name, name.replace("_", " "))
    return words if unit == "1" else f"{words} [{unit}]"


def level_name(value: Any) -> str:
    """Return the level of a factor as text."""
    if isinstance(value, str | bool):
        return str({True: "true", False: "false", "": "none"}.get(value, value))
    return "none" if math.isnan(value) else f"{value:g}"


def setting_and_level(name: str, value: Any) -> str:
    """Return a setting with its value: ``n = 400``, ``regression function: zero``."""
    words, symbol, unit = setting(name)
    level = level_name(value) + ("°" if unit == "degrees" else "")
    return f"{symbol} = {level}" if symbol else f"{words}: {level}"


def number(value: float, digits: int = 4, form: str = "g") -> str:
    """Return a number with at most ``digits`` significant digits, with exponents such as 1e-5; "–" for NaN."""
    return UNDEFINED if math.isnan(value) else re.sub(r"e[+]?(-?)0*(?=\d)", r"e\1", f"{value:.{digits}{form}}")


def between(lower: float, upper: float, mcse: float = math.nan) -> str:
    """Return an interval as text, ``0.9 to 1.1`` or ``≥ 0``, rounded according to the error of the estimate."""

    def rounded(value: float) -> str:
        if not (math.isfinite(mcse) and mcse > 0.0):
            return number(value)
        shown, _, rest = with_error(value, mcse).partition(" ± ")
        return shown.removeprefix("(") + rest.partition(")")[2]

    if math.isfinite(lower) and math.isfinite(upper):
        return f"{rounded(lower)} to {rounded(upper)}"
    if math.isfinite(lower):
        return f"≥ {rounded(lower)}"
    return f"≤ {rounded(upper)}" if math.isfinite(upper) else UNDEFINED


def level_of(n_claims: int) -> str:
    """Return the level of confidence intervals of a study with ``n_claims`` claims: LEVEL / n_claims on each side."""
    return f"{number(100.0 * (1.0 - 2.0 * LEVEL / n_claims))} %"


def with_error(estimate: float, mcse: float) -> str:
    """Return estimate and error to two significant digits of the error: ``0.5123 ± 0.0021``; "–" for NaN."""
    if math.isnan(estimate):
        return UNDEFINED
    if math.isnan(mcse):
        return f"{number(estimate, 6)} (too few replicates)"
    if not (math.isfinite(estimate) and math.isfinite(mcse)) or mcse == 0:
        return f"{number(estimate, 6)} ± {number(mcse)}"
    # The exponent after rounding: 0.0996 with two digits is 0.10, which has the exponent of 0.1.
    decimals = 1 - int(f"{mcse:.1e}".partition("e")[2])
    scale = max(math.floor(math.log10(abs(estimate))) if estimate else -400, 1 - decimals)
    if scale <= 5 and decimals <= (6 if scale < -1 else 9):
        return f"{_rounded(estimate, decimals)} ± {_rounded(mcse, decimals)}"
    if decimals + scale <= 8:
        return f"({' ± '.join(_rounded(value, decimals + scale, scale) for value in (estimate, mcse))})e{scale}"
    return f"{number(estimate, 8)} ± {number(mcse, 1, 'e')}"


def _rounded(value: float, decimals: int, scale: int = 0) -> str:
    """Return ``value / 10**scale`` with this number of decimals; negative numbers round to tens, hundreds, ..."""
    shown = round(Decimal(value).scaleb(-scale), decimals)
    return f"{shown + 0 if shown else abs(shown):.{max(decimals, 0)}f}"
