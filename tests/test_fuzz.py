"""Hostile input of designs and arrays, and what must come of it: one clear error, or a right answer.

Whether an array is valid is judged here anew, not by asking the package; right answers come from plain NumPy.  Here
are some hundreds of inputs; `make verify` takes thousands.
"""

import copy
import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from builders import DESIGN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simstudy
from simstudy.design.load import load_design
from simstudy.design.mistakes import DesignError
from simstudy.design.settings.cell import TABLE_OF, Cell
from simstudy.execution.store import store_of
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.replay import replay

# ---------------------------------------------------------------- arrays

SIZES = st.sampled_from([1, 1, 2, 3, 7, 0])
SCALES = st.sampled_from([1.0, 1.0, 1.0, 1e-3, 1e3, 1e-160, 1e160, 1e-300, 1e300])
KINDS = st.sampled_from(["normal", "normal", "normal", "equal", "zero", "nan", "inf", "int8", "bool", "float16",
                         "float32", "complex", "object", "text", "list"])  # fmt: skip
ODD = st.sampled_from([None, "x", [], [[1.0], [1.0, 2.0]], np.datetime64("2026-01-01"), 3.0, {}, b"\xff"])


def refused(call: Callable[[], Any], kinds: type[Exception] | tuple = ValueError) -> Any:
    """Return what a call returns, or None if it refuses with a message of one printable line for each mistake."""
    try:
        return call()
    except kinds as error:
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


def check_ensemble(case: dict[str, Any], _: Path) -> None:
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
        right = softmax_heads(keys, values, queries, heads, heads, float(case["bandwidth"]), case["logits"])
        columns = values.reshape(len(values), -1)
        estimates = result.head_estimate.values.reshape(len(queries), len(heads), -1)
        for v in range(columns.shape[1]):  # components of vector values
            agree(estimates[..., v], result.weight_gram.values, columns[:, v], np.ones(len(values)), right)


def softmax_heads(keys, values, queries, key_heads, query_heads, bandwidth, logits):
    """Weights (Q, H, n) and logits (Q, H, n) in extended precision, by the formulas."""
    wide = np.longdouble
    keys, queries, b = keys.astype(wide), queries.astype(wide), wide(bandwidth)
    images = np.einsum("hdp,nd->hnp", key_heads.astype(wide), keys)
    points = np.einsum("hdp,qd->qhp", query_heads.astype(wide), queries)
    if logits == "distance":
        scores = -(((points[:, :, None] - images[None]) / b) ** 2).sum(axis=-1) / 2
        size = (np.abs(points[:, :, None] / b) + np.abs(images[None] / b)).max(axis=-1) ** 2
    else:
        products = (points[:, :, None] / b) * (images[None] / b)
        scores, size = products.sum(axis=-1), np.abs(products).sum(axis=-1)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True), size


def agree(estimates, grams, values, variances, right, eps: float = 2.3e-16) -> None:
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
        error = 100 * eps * (1.0 + scale)
        if error < 1e-3:
            wanted = float(weights[q, h] @ values.astype(np.longdouble))
            assert abs(found - wanted) <= error * largest + 1e-300, (found, wanted)
            for g in range(len(grams[q]) if grams is not None else 0):
                noise = float((weights[q, h] * weights[q, g] * variances).sum())
                other = 100 * eps * (1.0 + float(min(size[q, g].max(), np.longdouble(1e308))))
                assert abs(grams[q, h, g] - noise) <= (error + other) * variances.max() + 1e-300


# ---------------------------------------------------------------- designs

SETTINGS: dict[str, list[Any]] = {
    "n_keys": [1, 2, 40, 17], "n_features": [1, 2, 6], "n_heads": [1, 2, 3], "head_dim": [1, 2, 6],
    "arrangement": ["aligned", "orthogonal", "rotated", "haar", "haar_redrawn", "principal_angles", "file"],
    "angle": [0, 45.0, 90, 1e-9], "principal_angles": [[0, 90], [30.0], []], "bandwidth": [1e-9, 1e9, 0.5, "attention"],
    "logits": ["distance", "dot_product"], "combination": ["uniform", "sum", [0.5, 0.5], [1e9, -1e9], "product"],
    "queries": ["origin", {"kind": "gaussian", "count": 3, "scale": 1e3}, {"kind": "points", "points": [[1e9], [0]]},
                {"kind": "held_out", "count": 3}],
    "noise_sd": [0, 1, 1e9, 1e-9], "noise": ["gaussian", "residuals", {"kind": "student_t", "df": 2.0001}],
    "key_distribution": ["sphere", {"kind": "student_t", "df": 2.1}, {"kind": "mixture"},
                         {"kind": "autoregressive", "coefficient": 0.999},
                         {"kind": "file", "path": "sklearn:diabetes", "held_out": 3, "response": "target",
                          "columns": ["bmi", "bp", "s1", "s2", "s3", "s4"]},
                         {"kind": "file", "path": "/dev/zero"}],
    "regression": ["file", "own", {"kind": "own", "path": "/dev/zero", "name": "m"},
                   {"kind": "fitted", "learner": "linear"},
                   "zero", "linear", "quadratic", "additive", "interaction",
                   {"kind": "linear", "coefficients": [1e9]}],
    "seed": [0, 2**63 - 1], "batch_size": [16, 32], "noise_treatment": ["integrated", "drawn"],
    "control": ["expansion", "none"],
    "dtype": ["float32", "float64"], "query_projections": ["same", "opposite", "haar"],
    "file": ["/dev/zero", "../x.npy"], "key_distributions": ["typo"],
    "normaliser": ["sparsemax", {"kind": "compact", "power": 2, "window": 1e-9}, {"kind": "relu", "threshold": -1.0},
                   {"kind": "entmax", "power": 10_000}, {"kind": "entmax", "power": 0}, {"kind": "top_k", "k": 9}],
    "transformation": [{"kind": "merge", "stride": 3}, {"kind": "low_rank", "rank": 1}],
    "normaliser.power": [1, 2, 1.5], "normaliser.kind": ["relu"], "transformation.rank": [1, 99],
    "transformation.": [1],
}  # fmt: skip
NAMES = st.sampled_from(
    ["..", "../../etc", "/tmp/x", "a/b", "", ".", "a\x00b", "a\nb", "\x1b[2J", "é", "A", "x" * 300, "con", "-", "a--b"]
)
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 10**400, -1, 2**53 + 1]), st.floats(), st.booleans(),
    # New ones each time: they are changed below.
    st.text(max_size=8), NAMES, st.builds(list), st.builds(dict),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def documents(draw: Any) -> bytes:
    """Draw a design file: a valid one with a few of its entries replaced, removed or added."""
    raw = tomllib.loads(DESIGN)
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(sorted(SETTINGS)))
        levels = st.sampled_from(SETTINGS[name]).map(copy.deepcopy)  # they are changed below
        value = draw(levels)
        place = draw(st.integers(0, 2))
        if place == 0:
            raw.setdefault(TABLE_OF.get(name, "heads"), {})[name] = value
        elif place == 1:
            raw["grids"]["angles"].setdefault("settings", {})[name] = value
        else:
            raw["grids"]["angles"]["factors"][name] = [value, *draw(st.lists(levels, max_size=2))]
    for _ in range(draw(st.integers(0, 2))):
        _vandalise(draw, raw)
    return json.dumps(raw).encode()


def _vandalise(draw: Any, raw: dict[str, Any]) -> None:
    node: Any = raw
    while True:
        key = draw(st.sampled_from([*sorted(node), None]) if node else st.none())
        if key is None:
            node[draw(NAMES | st.text(max_size=5))] = draw(VALUES)
            return
        action = draw(st.integers(0, 5))
        if action < 3 and isinstance(node[key], dict):
            node = node[key]
            continue
        if action == 3:
            del node[key]
        elif action == 4:
            node[draw(NAMES)] = node.pop(key)
        else:
            node[key] = draw(VALUES)
        return


@st.composite
def damaged(draw: Any) -> bytes:
    content = bytearray(DESIGN.encode())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.sampled_from([0, 1, 1, 5, 200]))
        odd = st.sampled_from([b"\xff\xfe", b"\x00", b"[" * 999])
        content[place : place + length] = draw(st.binary(max_size=4) | odd)
    return bytes(content)


def check_design(content: bytes, folder: Path) -> None:
    """`load_design` refuses in clear lines or gives cells that stay in their folder and compute what they should."""
    path = folder / "design.toml"
    path.write_bytes(content)
    for profile in ("quick", "full"):
        design = refused(lambda profile=profile: load_design(path, profile), DesignError)
        if design is None:
            continue
        output = folder / "out"
        assert output.resolve() in store_of(design, output).folder.resolve().parents
        for planned in design.cells[:2]:
            check_cell(planned.cell)


def check_cell(cell: Cell) -> None:
    """A replicate of a valid cell of softmax heads is that of its keys, and a batch of any counts every replicate."""
    data, heads = cell.data, cell.heads
    size = data.n_keys * data.n_features * heads.n_heads * heads.head_dim
    if size * cell.n_queries * cell.simulation.batch_size > 1e6:
        return
    seen = replay(cell, 3)
    eps = float(np.finfo(cell.simulation.dtype).eps)
    plain = cell.estimator.plain and cell.estimator.combination.kind != "product" and cell.functions is None
    if plain and not seen.attrs["failure"]:
        wide = {name: seen[name].values.astype(float) for name in seen.data_vars}
        right = softmax_heads(
            wide["keys"].T, wide["values"], wide["query_points"], wide["key_projections"], wide["query_projections"],
            cell.bandwidth, cell.estimator.logits,
        )  # fmt: skip
        agree(wide["head_estimate"], wide.get("gram"), wide["values"], wide["noise_variance"], right, eps)
    (moments,) = simulate_batch([cell], 0)
    assert moments.n_defined.sum() + len(moments.failed) == cell.simulation.batch_size
    assert (3 in moments.failed) == bool(seen.attrs["failure"])


# ---------------------------------------------------------------- checks

FUZZ: dict[str, tuple[st.SearchStrategy, Callable[[Any, Path], None], tuple[int, int]]] = {
    "nw_ensemble": (ensembles(), check_ensemble, (100, 4000)),
    "design entries": (documents(), check_design, (60, 2500)),
    "design bytes": (damaged(), check_design, (100, 1500)),
}
"""What is drawn, what is checked of it in a folder for scratch, and how often: few times, and many."""


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", FUZZ)
def test_hostile_input__gets_a_clear_error_or_a_right_answer(name, many, tmp_path):
    strategy, check, counts = FUZZ[name]
    checked = []

    # A case that hangs is a matter of the limit for whole tests: on a busy machine, time says nothing of a case.
    @settings(max_examples=counts[many], deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def examine(case: Any) -> None:
        checked.append(1)
        check(case, tmp_path)

    examine()
    # Hypothesis stops early if cases run out.
    assert len(checked) >= (0.9 if many else 0.5) * counts[many]
