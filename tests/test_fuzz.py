"""Hostile arrays, and what must come of them: one clear error, or a right answer.

Whether an array is valid is judged here anew, not by asking the package; right answers come from plain NumPy.  Here
are some hundreds of inputs; `make verify` takes thousands.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simstudy

# ---------------------------------------------------------------- arrays

SIZES = st.sampled_from([1, 1, 2, 3, 7, 0])
SCALES = st.sampled_from([1.0, 1.0, 1.0, 1e-3, 1e3, 1e-160, 1e160, 1e-300, 1e300])
KINDS = st.sampled_from(["normal", "normal", "normal", "equal", "zero", "nan", "inf", "int8", "bool", "float16",
                         "float32", "complex", "object", "text", "list"])  # fmt: skip
ODD = st.sampled_from([None, "x", [], [[1.0], [1.0, 2.0]], np.datetime64("2026-01-01"), 3.0, {}, b"\xff"])


def refused(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or None if it refuses with a message of one printable line for each mistake."""
    try:
        return call()
    except ValueError as error:
        for line in str(error).split("\n"):
            assert line.isprintable() and 10 < len(line) < 2000, repr(line)
        return None


class Drawn(NamedTuple):
    array: Any
    sound: bool  # entries are real and finite


def judged(values: np.ndarray) -> Drawn:
    return Drawn(values, values.dtype.kind in "fiub" and bool(np.isfinite(values).all()))


@st.composite
def arrays(draw: Any, shape: tuple[int, ...]) -> Drawn:
    if draw(st.integers(0, 60)) == 0:
        return Drawn(draw(ODD), False)
    if draw(st.integers(0, 25)) == 0:
        shape = (*shape[:-1], shape[-1] + 1) if draw(st.booleans()) else (*shape, 1)
    kind, scale = draw(KINDS), draw(SCALES)
    if draw(st.booleans()):
        kind = "normal"
    values = np.random.default_rng(draw(st.integers(0, 2**32))).standard_normal(shape) * scale
    if kind in ("equal", "zero"):
        values = np.full(shape, scale if kind == "equal" else 0.0)
    if kind in ("nan", "inf") and values.size:
        values.flat[draw(st.integers(0, values.size - 1))] = float(kind)
    types = {"int8": np.int8, "bool": bool, "float16": np.float16, "float32": np.float32, "complex": complex,
             "object": object, "text": str}  # fmt: skip
    if kind in types:
        with np.errstate(all="ignore"):
            values = (values / scale if kind in ("int8", "float16", "float32") else values).astype(types[kind])
    found = judged(values)
    return Drawn(values.tolist(), found.sound) if kind == "list" else found


BANDWIDTHS = st.one_of(
    st.sampled_from([0.5, 1.0, 1, 2.0, np.float32(0.7), 1e-3, 1e3, 1e-150, 1e150, 5e-324, 1.7e308, True]),
    st.sampled_from([0.0, -1.0, math.nan, math.inf, None, "1", [1.0], 1j, 10**400]),
    st.floats(1e-3, 1e3),
)


def good_bandwidth(given: Any) -> bool:
    try:
        number = isinstance(given, (int, float, np.floating)) and not isinstance(given, bool)
        return number and 0 < float(given) < math.inf
    except OverflowError:
        return False


@st.composite
def ensembles(draw: Any) -> dict[str, Any]:
    n, d, n_heads, n_queries = (draw(SIZES) for _ in range(4))
    p = draw(st.sampled_from([d, max(d - 1, 1), 1, d + 1]))
    heads = draw(arrays((n_heads, d, p)))
    kind = draw(st.integers(0, 5))
    if kind < 2 and n_heads > 1 and isinstance(heads.array, np.ndarray) and heads.array.ndim == 3:
        # Identical heads, and heads that nearly are.
        copies = np.repeat(heads.array[:1], n_heads, axis=0)
        nudge = 0.0 if kind == 0 else 1e-9 * np.arange(n_heads)[:, None, None]
        with np.errstate(all="ignore"):
            heads = judged(copies + copies[..., ::-1] * nudge if copies.dtype.kind == "f" else copies)
    return {
        "keys": draw(arrays((n, d))), "values": draw(arrays((n,))), "queries": draw(arrays((n_queries, d))),
        "projections": heads, "bandwidth": draw(BANDWIDTHS),
        "logits": draw(st.sampled_from(["distance", "dot_product"] * 5 + ["", None, "../x", 3])),
        "combination": draw(st.none() | arrays((n_heads,)).filter(lambda drawn: drawn.array is not None)),
    }  # fmt: skip


def _shapes_agree(keys: Any, values: Any, queries: Any, heads: Any, combination: Any) -> bool:
    keys, values, queries, heads = (np.asarray(a) for a in (keys, values, queries, heads))
    heads = heads[None] if heads.ndim == 2 else heads
    if not (keys.ndim == queries.ndim == 2 and values.ndim in (1, 2) and heads.ndim == 3):
        return False
    if combination is not None and np.shape(combination) != (len(heads),):
        return False
    sizes = (*keys.shape, *values.shape, len(queries), *heads.shape)
    same = keys.shape[1] == queries.shape[1] == heads.shape[1] and len(values) == len(keys)
    return same and min(sizes) > 0 and heads.shape[2] <= heads.shape[1]


def check_ensemble(case: dict[str, Any]) -> None:
    """`nw_ensemble` accepts exactly the valid, and then is a softmax."""
    drawn = {k: v for k, v in case.items() if isinstance(v, Drawn)}
    given = case | {name: value.array for name, value in drawn.items()}
    valid = all(value.sound for value in drawn.values()) and good_bandwidth(case["bandwidth"])
    valid = valid and case["logits"] in ("distance", "dot_product")
    valid = valid and _shapes_agree(*(given[k] for k in ("keys", "values", "queries", "projections", "combination")))
    arguments = [given[name] for name in ("keys", "values", "queries", "projections", "bandwidth")]
    result = refused(lambda: simstudy.nw_ensemble(*arguments, logits=case["logits"], combination=given["combination"]))
    assert (result is not None) == valid
    if result is not None:
        keys, values, queries, heads = (np.asarray(a, float) for a in arguments[:4])
        heads = heads[None] if heads.ndim == 2 else heads
        right = softmax_heads(keys, queries, heads, float(case["bandwidth"]), case["logits"])
        columns = values.reshape(len(values), -1)
        estimates = result.head_estimate.values.reshape(len(queries), len(heads), -1)
        for v in range(columns.shape[1]):  # components of vector values
            agree(estimates[..., v], result.weight_gram.values, columns[:, v], np.ones(len(values)), right)


def softmax_heads(keys, queries, heads, bandwidth, logits):
    """Weights (Q, H, n) and logits (Q, H, n) in extended precision, by the formulas."""
    wide = np.longdouble
    keys, queries, b = keys.astype(wide), queries.astype(wide), wide(bandwidth)
    images = np.einsum("hdp,nd->hnp", heads.astype(wide), keys)
    points = np.einsum("hdp,qd->qhp", heads.astype(wide), queries)
    if logits == "distance":
        scores = -(((points[:, :, None] - images[None]) / b) ** 2).sum(axis=-1) / 2
        size = (np.abs(points[:, :, None] / b) + np.abs(images[None] / b)).max(axis=-1) ** 2
    else:
        products = (points[:, :, None] / b) * (images[None] / b)
        scores, size = products.sum(axis=-1), np.abs(products).sum(axis=-1)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True), size


def agree(estimates, grams, values, variances, right) -> None:
    """Estimates are NaN only beyond the range of float64, in the hull of the values, and right where well-posed."""
    weights, size = right
    largest = float(np.abs(values).max())
    for q, h in np.ndindex(estimates.shape):
        scale = float(min(size[q, h].max(), np.longdouble(1e308)))
        found = estimates[q, h]
        if not np.isfinite(found):
            assert scale > 1e290 or largest > 1e290, f"NaN though logits are of size {scale}"
            continue
        assert values.min() - 1e-9 * largest <= found <= values.max() + 1e-9 * largest
        error = 2.3e-14 * (1.0 + scale)
        if error < 1e-3:
            wanted = float(weights[q, h] @ values.astype(np.longdouble))
            assert abs(found - wanted) <= error * largest + 1e-300, (found, wanted)
            for g in range(len(grams[q]) if grams is not None else 0):
                noise = float((weights[q, h] * weights[q, g] * variances).sum())
                other = 2.3e-14 * (1.0 + float(min(size[q, g].max(), np.longdouble(1e308))))
                assert abs(grams[q, h, g] - noise) <= (error + other) * variances.max() + 1e-300


@pytest.mark.parametrize("count", [100, pytest.param(4000, marks=pytest.mark.rare)])
def test_hostile_input__gets_a_clear_error_or_a_right_answer(count):
    checked = []

    # A case that hangs is a matter of the limit for whole tests: on a busy machine, time says nothing of a case.
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(ensembles())
    def examine(case: Any) -> None:
        checked.append(1)
        check_ensemble(case)

    examine()
    # Hypothesis stops early if cases run out.
    assert len(checked) >= 0.5 * count
