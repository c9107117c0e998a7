"""Hostile design files with the cells of those that are accepted, damaged results, and arguments of runs."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from builders import DESIGN
from fuzzing.arrays import agree, refused, softmax_heads
from hypothesis import strategies as st

import simstudy
from simstudy.design.load import load_design
from simstudy.design.mistakes import DesignError
from simstudy.design.settings.cell import TABLE_OF, Cell
from simstudy.errors import UserError
from simstudy.execution.store import store_of
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.replay import replay
from simstudy.results import cells_of

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


@st.composite
def edits(draw: Any) -> tuple[float, bytes, bool]:
    """Where a file of results is damaged, by what, and whether it is cut off."""
    return draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=8)), draw(st.booleans())


def check_results(case: tuple[float, bytes, bool], folder: Path) -> None:
    """`open_results` refuses a damaged file, or reads it; `folder` holds a good ``results.nc``."""
    where, what, cut = case
    content = bytearray((folder / "results.nc").read_bytes())
    place = int(where * len(content))
    if cut:
        del content[place:]
    else:
        content[place : place + len(what)] = what
    path = folder / "damaged.nc"
    path.write_bytes(bytes(content))
    refused(lambda: cells_of(path), UserError)


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
