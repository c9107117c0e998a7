"""Hostile input of every public function, and what must come of it: one clear error, or a right answer.

Imports NumPy, SciPy, Hypothesis, xarray and simstudy.  Each check takes what its strategy draws.  Whether an input is
valid is judged here anew, not by asking the package; right answers come from plain NumPy.
"""

from __future__ import annotations

import copy
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from builders import DESIGN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simstudy
from simstudy.batch import simulate_batch
from simstudy.cells import Cell
from simstudy.design import load_design
from simstudy.problems import DesignError, UserError
from simstudy.replay import replay
from simstudy.store import read_results
from simstudy.study import store_of


class Fuzz(NamedTuple):
    """One property: what is drawn, and what is checked of it in a folder for scratch."""

    strategy: st.SearchStrategy
    check: Callable[[Any, Path], None]


def fuzz(subject: Fuzz, folder: Path, n_cases: int) -> int:
    """Check so many cases; return how many were checked."""
    n = 0

    # Hypothesis shows the smallest case that fails; a case that takes longer than this hangs for all practical ends.
    @settings(max_examples=n_cases, deadline=20_000, database=None, suppress_health_check=list(HealthCheck))
    @given(subject.strategy)
    def examine(case: Any) -> None:
        nonlocal n
        n += 1
        subject.check(case, folder)

    examine()
    return n


def refused(call: Callable[[], Any], kinds: type[Exception] | tuple = ValueError) -> Any:
    """Return what a call returns, or None if it refuses with a message of one printable line for each mistake."""
    try:
        return call()
    except kinds as error:
        for line in str(error).split("\n"):
            assert line.isprintable() and 10 < len(line) < 1000, repr(line)
        return None


# ---------------------------------------------------------------- arrays

SIZES = st.sampled_from([1, 1, 2, 3, 7, 0])
SCALES = st.sampled_from([1.0, 1.0, 1.0, 1e-3, 1e3, 1e-160, 1e160, 1e-300, 1e300])
KINDS = st.sampled_from(["normal", "normal", "normal", "equal", "zero", "nan", "inf", "int8", "bool", "float16",
                         "float32", "complex", "object", "text", "list"])  # fmt: skip
ODD = st.sampled_from([None, "x", [], [[1.0], [1.0, 2.0]], np.datetime64("2026-01-01"), 3.0, {}, b"\xff"])
GOOD_KINDS = {"normal", "equal", "zero", "int8", "bool", "float16", "float32", "list"}


class Drawn(NamedTuple):
    """An array argument, and whether its entries are real and finite."""

    array: Any
    sound: bool


def judged(values: np.ndarray) -> Drawn:
    return Drawn(values, values.dtype.kind in "fiub" and bool(np.isfinite(values).all()))


@st.composite
def arrays(draw: Any, shape: tuple[int, ...]) -> Drawn:
    """Draw an array of about this shape."""
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
        return isinstance(given, (bool, int, float, np.floating)) and 0 < float(given) < math.inf
    except OverflowError:
        return False


@st.composite
def ensembles(draw: Any) -> dict[str, Any]:
    n, d, n_heads, n_queries = (draw(SIZES) for _ in range(4))
    p = draw(st.sampled_from([d, max(d - 1, 1), 1, d + 1]))
    heads = draw(arrays((n_heads, d, p)))
    if draw(st.integers(0, 5)) == 0 and n_heads > 1 and isinstance(heads.array, np.ndarray) and heads.array.ndim == 3:
        heads = judged(np.repeat(heads.array[:1], n_heads, axis=0))  # identical heads
    return {
        "keys": draw(arrays((n, d))), "values": draw(arrays((n,))), "queries": draw(arrays((n_queries, d))),
        "projections": heads, "bandwidth": draw(BANDWIDTHS),
        "logits": draw(st.sampled_from(["distance", "dot_product"] * 5 + ["", None, "../x", 3])),
        "combination": draw(st.none() | arrays((n_heads,)).filter(lambda drawn: drawn.array is not None)),
    }  # fmt: skip


def _shapes_agree(keys: Any, values: Any, queries: Any, heads: Any, combination: Any) -> bool:
    keys, values, queries, heads = (np.asarray(a) for a in (keys, values, queries, heads))
    heads = heads[None] if heads.ndim == 2 else heads
    if not (keys.ndim == queries.ndim == 2 and values.ndim == 1 and heads.ndim == 3):
        return False
    if combination is not None and np.shape(combination) != (len(heads),):
        return False
    sizes = (*keys.shape, len(queries), *heads.shape)
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
        agree(result.head_estimate.values, result.weight_gram.values, values, np.ones(len(values)), right)


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


# ---------------------------------------------------------------- geometry


@st.composite
def projections(draw: Any) -> tuple[Drawn, Any]:
    d, n_heads = draw(SIZES), draw(SIZES)
    p = draw(st.sampled_from([d, max(d - 1, 1), 1, d + 1]))
    heads = draw(arrays((n_heads, d, p)))
    kind = draw(st.integers(0, 5))
    if kind < 2 and n_heads > 1 and isinstance(heads.array, np.ndarray) and heads.array.ndim == 3:
        # Identical heads, and heads that nearly are.
        nudge = 0.0 if kind == 0 else 1e-9 * np.arange(n_heads)[:, None, None]
        with np.errstate(all="ignore"):
            copies = np.repeat(heads.array[:1], n_heads, axis=0)
            heads = judged(copies + copies[..., ::-1] * nudge if copies.dtype.kind == "f" else copies)
    return heads, draw(st.one_of(st.none(), BANDWIDTHS))


def check_geometry(case: tuple[Drawn, Any], _: Path) -> None:
    """`principal_angles` and `head_diversity` accept what has shape and rank, and agree with SciPy and definitions."""
    heads, bandwidth = case
    angles = refused(lambda: simstudy.principal_angles(heads.array))
    indices = refused(lambda: simstudy.head_diversity(heads.array, bandwidth))
    good = bandwidth is None or good_bandwidth(bandwidth)
    assert (indices is not None) == (angles is not None and good)
    given = np.asarray(heads.array) if heads.sound else np.zeros(0)
    given = given[None] if given.ndim == 2 else given
    shaped = given.ndim == 3 and 0 not in given.shape and given.shape[2] <= given.shape[1]
    if not shaped:
        assert angles is None
        return
    given = given.astype(float)
    unit = given / np.maximum(np.abs(given).max(axis=(1, 2), keepdims=True), 1e-320)
    singular = np.linalg.svd(unit, compute_uv=False)
    conditions = singular[:, -1] / np.maximum(singular[:, 0], 1e-300)
    if angles is None:
        assert conditions.min() < 1e-13 or np.abs(given).max() < 1e-290, "refused though of full rank"
        return
    assert conditions.min() > 1e-17
    if conditions.min() > 1e-6:
        for h, g in np.ndindex(len(given), len(given)):
            wanted = np.sort(scipy.linalg.subspace_angles(unit[h], unit[g]))
            # SciPy takes an arc cosine where a zero stands beside a large angle: half of its digits are lost there.
            np.testing.assert_allclose(angles.values[h, g], wanted, atol=1e-14 / conditions.min() + 1e-7)
            bases = [scipy.linalg.orth(unit[k]) for k in (h, g)]
            cosines = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
            np.testing.assert_allclose(np.cos(angles.values[h, g]), cosines, atol=1e-14 / conditions.min() + 1e-12)
    if indices is not None and len(given) > 1:
        chordal = np.mean([np.mean(np.sin(angles.values[h, g]) ** 2) for h, g in np.ndindex(len(given), len(given))
                           if h < g])  # fmt: skip
        assert abs(float(indices.sel(index="chordal")) - chordal) < 1e-9
        assert ((indices.values > -1e-9) | np.isnan(indices.values)).all()


# ---------------------------------------------------------------- design files

SETTINGS: dict[str, list[Any]] = {
    "n_keys": [1, 2, 40, 17], "n_features": [1, 2, 6], "n_heads": [1, 2, 3], "head_dim": [1, 2, 6],
    "arrangement": ["aligned", "orthogonal", "rotated", "haar", "haar_redrawn", "principal_angles", "file"],
    "angle": [0, 45.0, 90, 1e-9], "principal_angles": [[0, 90], [30.0], []], "bandwidth": [1e-9, 1e9, 0.5, "attention"],
    "logits": ["distance", "dot_product"], "combination": ["uniform", "sum", [0.5, 0.5], [1e9, -1e9], "product"],
    "queries": ["origin", {"kind": "gaussian", "count": 3, "scale": 1e3}, {"kind": "points", "points": [[1e9], [0]]}],
    "noise_sd": [0, 1, 1e9, 1e-9], "noise": ["gaussian", {"distribution": "student_t", "df": 2.0001}],
    "key_distribution": ["sphere", {"distribution": "student_t", "df": 2.1}, {"distribution": "mixture"},
                         {"distribution": "autoregressive", "coefficient": 0.999}],
    "regression": ["zero", "linear", "quadratic", "additive", "interaction", {"function": "bumps", "width": 1e-9},
                   {"function": "linear", "coefficients": [1e9]}],
    "seed": [0, 2**63 - 1], "batch_size": [16, 32], "noise_treatment": ["integrated", "drawn"],
    "control_variate": ["linear_part", "none"],
    "dtype": ["float32", "float64"], "query_projections": ["same", "opposite", "haar"],
    "file": ["/dev/zero", "../x.npy"], "key_distributions": ["typo"],
    "normaliser": ["sparsemax", {"kind": "compact", "power": 2, "window": 1e-9}, {"kind": "relu", "threshold": -1.0},
                   {"kind": "entmax", "power": 10_000}, {"kind": "entmax", "power": 0}],
    "transformation": [{"kind": "merge", "stride": 3}, {"kind": "mixture", "levels": 30},
                       {"kind": "low_rank", "rank": 1}],
    "normaliser.power": [1, 2, 1.5], "normaliser.kind": ["relu"], "transformation.rank": [1, 99],
    "transformation.": [1],
    "instance": [{"kind": "normaliser", "power": 3}, {"kind": "kq_svd", "rank": 2}, "kq_svd"],
    "instance.rank": [1, -1],
}  # fmt: skip
TABLES = {"n_keys": "data", "n_features": "data", "noise_sd": "data", "noise": "data", "key_distribution": "data",
          "regression": "data", "bandwidth": "estimator", "logits": "estimator", "combination": "estimator",
          "queries": "queries", "seed": "simulation", "batch_size": "simulation", "dtype": "simulation",
          "noise_treatment": "simulation", "control_variate": "simulation", "normaliser": "estimator",
          "transformation": "estimator", "instance": "estimator"}  # fmt: skip
NAMES = st.sampled_from(
    ["..", "../../etc", "/tmp/x", "a/b", "", ".", "a\x00b", "a\nb", "\x1b[2J", "é", "A", "x" * 300, "con", "-", "a--b"]
)
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 10**400, -1, 2**53 + 1]), st.floats(), st.booleans(),
    st.text(max_size=8), NAMES, st.just([]), st.just({}),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def toml(value: Any) -> str:
    """Write a value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08X}" for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return repr(value)


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
            raw.setdefault(TABLES.get(name, "heads"), {})[name] = value
        elif place == 1:
            raw["grids"]["angles"].setdefault("settings", {})[name] = value
        else:
            raw["grids"]["angles"]["factors"][name] = [
                value,
                *draw(st.lists(levels, max_size=2)),
            ]
    for _ in range(draw(st.integers(0, 2))):
        _vandalise(draw, raw)
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in raw.items()).encode()


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
    """Draw a design file of which some bytes are others."""
    content = bytearray(DESIGN.encode())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.sampled_from([0, 1, 1, 5, 200]))
        content[place : place + length] = draw(
            st.binary(max_size=4) | st.sampled_from([b"\xff\xfe", b"\x00", b"[" * 999])
        )
    return bytes(content)


def check_design(content: bytes, folder: Path) -> None:
    """`load_design` refuses in clear lines or gives cells that stay in their folder and compute what they should."""
    path = folder / "design.toml"
    path.write_bytes(content)
    for profile in ("quick", *_profiles(content)):
        design = refused(lambda profile=profile: load_design(path, profile), DesignError)
        if design is None:
            continue
        output = folder / "out"
        assert output.resolve() in store_of(design, output).folder.resolve().parents
        for planned in design.cells[:2]:
            check_cell(planned.cell)


def _profiles(content: bytes) -> list[str]:
    try:
        found = tomllib.loads(content.decode()).get("profiles", {})
    except (ValueError, RecursionError):
        return []
    return list(found) if isinstance(found, dict) else []


def check_cell(cell: Cell) -> None:
    """A replicate of a valid cell of softmax heads is that of its keys, and a batch of any counts every replicate."""
    data, heads = cell.data, cell.heads
    if (
        data.n_keys * data.n_features * heads.n_heads * heads.head_dim * cell.n_queries * cell.simulation.batch_size
        > 1e6
    ):
        return
    seen = replay(cell, 3)
    eps = float(np.finfo(cell.simulation.dtype).eps)
    plain = cell.estimator.plain and cell.estimator.combination.rule != "product" and not cell.measures_instance
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


# ---------------------------------------------------------------- results


@st.composite
def changes(draw: Any) -> list[tuple[str, Any]]:
    """Draw what is done to good results before they are laid out."""
    names = st.sampled_from(
        ["angle", "bandwidth", "bandwidth_rule", "grid", "mse", "cell", "n_keys", "factors", "absent"]
    )
    kinds = st.sampled_from(["drop", "repeat", "few", "attribute", "rename", "nan"])
    return draw(st.lists(st.tuples(kinds, st.tuples(names, NAMES | st.integers(0, 6))), min_size=1, max_size=3))


def check_layout(case: list[tuple[str, Any]], folder: Path) -> None:
    """`to_grid` refuses what is no longer the results of a study, or puts every cell where its labels say."""
    results: Any = read_results(folder / "results.nc")
    for kind, (name, what) in case:
        number = what if isinstance(what, int) else 1
        if kind == "drop":
            results = results.drop_vars(name, errors="ignore")
        elif kind == "repeat" and "cell" in results.dims:
            results = results.isel(cell=[0, number % max(results.sizes["cell"], 1), 0] if results.sizes["cell"] else [])
        elif kind == "few" and "cell" in results.dims:
            results = results.isel(cell=slice(0, number))
        elif kind == "attribute":
            results = results.assign_attrs(factors=what)
        elif kind == "rename" and name in results and isinstance(what, str):
            results = results.rename({name: what}) if what not in results and what not in results.dims else results
        elif kind == "nan" and name in ("mse", "n_keys") and name in results:
            results[name] = results[name] * np.nan
    grid = refused(lambda: simstudy.to_grid(results), UserError)
    if grid is not None and "mse" in results and {"angle", "bandwidth"} <= set(grid.dims):
        for cell in range(results.sizes["cell"]):
            one = results.isel(cell=cell)
            found = grid.mse.sel(angle=one.angle, bandwidth=one.bandwidth, source="empirical").values
            np.testing.assert_array_equal(found, one.mse.sel(source="empirical").values)


@st.composite
def edits(draw: Any) -> tuple[float, bytes, bool, str]:
    """Where a file of results is damaged, by what, whether it is cut off, and which grid is asked for."""
    return (
        draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=8)), draw(st.booleans()),
        draw(st.sampled_from(["angles", "", "..", "absent"])),
    )  # fmt: skip


def check_results(case: tuple[float, bytes, bool, str], folder: Path) -> None:
    """`open_results` and `to_grid` refuse a damaged file, or read it; `folder` holds a good ``results.nc``."""
    where, what, cut, grid = case
    content = bytearray((folder / "results.nc").read_bytes())
    place = int(where * len(content))
    if cut:
        del content[place:]
    else:
        content[place : place + len(what)] = what
    path = folder / "damaged.nc"
    path.write_bytes(bytes(content))
    results = refused(lambda: simstudy.open_results(path), UserError)
    if results is not None:
        refused(lambda: simstudy.to_grid(results, grid), UserError)


# ---------------------------------------------------------------- runs

RUNS = st.fixed_dictionaries(
    {
        "profile": st.sampled_from(["quick", "quick", "full", "", "../x", "absent", None, 3]),
        "executor": st.sampled_from(["serial", "serial", "serial", "gpu", "", None, 3, "tcp://", "://", "tcp://nowhere:x"]),
        "workers": st.sampled_from([None, 1, 0, -1, 1.5, "2", True]),
        "output": st.sampled_from(["new", "new", "file", "file/below", "a\x00b", "x" * 300]),
    }
)  # fmt: skip


def check_run(case: dict[str, Any], folder: Path) -> None:
    """`run` refuses bad arguments without a trace, or runs; `folder` holds a good ``design.toml`` and a ``file``."""
    good = case["profile"] in ("quick", "full") and case["executor"] == "serial" and case["output"] == "new"
    good = good and case["workers"] in (None, 1) and not isinstance(case["workers"], bool)
    before = {path for path in folder.rglob("*") if "new" not in path.parts}
    arguments = case | {"output": folder / case["output"]}
    results = refused(lambda: simstudy.run(folder / "good.toml", **arguments), UserError)
    assert (results is not None) == good, case
    assert {path for path in folder.rglob("*") if "new" not in path.parts} == before


FUZZ: dict[str, Fuzz] = {
    "nw_ensemble": Fuzz(ensembles(), check_ensemble),
    "geometry": Fuzz(projections(), check_geometry),
    "design entries": Fuzz(documents(), check_design),
    "design bytes": Fuzz(damaged(), check_design),
    "results": Fuzz(edits(), check_results),
    "layout": Fuzz(changes(), check_layout),
    "run": Fuzz(RUNS, check_run),
}
