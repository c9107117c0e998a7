"""Tables as estimates: every layout gives the same numbers, with the errors of a naive loop; mistakes are named."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from simstudy.errors import UserError
from simstudy.judging.table import Columns, numbers_of, table_of

VALUES = np.random.default_rng(0).normal(size=(90, 4))
CONDITIONS = [{"model": model, "size": size} for model in "AB" for size in (10, 20)]
WIDE = pd.DataFrame(VALUES, columns=pd.MultiIndex.from_product([["A", "B"], [10, 20]], names=["model", "size"]))
LONG = WIDE.rename_axis("task").stack(["model", "size"]).rename("score").reset_index()


def estimates(numbers, **columns):
    return numbers_of(table_of(numbers, Columns(**columns))).estimates


@pytest.mark.parametrize("layout", ["wide", "long", "shuffled", "array"])
def test_layouts__of_one_table_give_the_same_estimates_paired_by_unit(layout):
    of_long = {"unit": "task", "value": "score"}
    numbers, columns = {
        "wide": (WIDE, {}),
        "long": (LONG, of_long),
        "shuffled": (LONG.sample(frac=1.0, random_state=1).assign(note="x"), of_long | {"factors": ("model", "size")}),
        "array": (xr.DataArray(VALUES.reshape(90, 2, 2).swapaxes(0, 1), dims=("model", "task", "size"),
                               coords={"model": ["A", "B"], "size": [10, 20]}), {"unit": "task"}),
    }[layout]  # fmt: skip
    found = estimates(numbers, **columns)
    order = [found.conditions.index(each) for each in CONDITIONS]
    assert found.values[order] == pytest.approx(VALUES.mean(axis=0))
    assert found.covariance(order) == pytest.approx(np.cov(VALUES.T) / 90)


def test_arrays_by_name__are_conditions_and_names_that_are_numbers_are_numbers():
    found = estimates({"10": VALUES[:, 0], "20.5": VALUES[:, 1]})
    assert found.conditions == [{"condition": 10.0}, {"condition": 20.5}]
    assert estimates(dict(zip("ab", VALUES.T, strict=False))).conditions == [{"condition": "a"}, {"condition": "b"}]


@pytest.mark.parametrize("of_one", [True, False])
def test_clusters__contribute_as_wholes(of_one):
    """Against a naive loop: the error of a mean of units in clusters of unequal sizes."""
    names = np.arange(90) if of_one else np.random.default_rng(1).integers(0, 30, 90)
    frame = pd.DataFrame(VALUES[:, :2], columns=["a", "b"]).assign(text=names)
    found = estimates(frame, cluster="text")
    groups = sorted(set(names))
    squares = 0.0
    for group in groups:
        residual = VALUES[names == group, 0] - VALUES[:, 0].mean()
        squares += (residual.sum() / 90) ** 2
    assert found.covariance([0])[0, 0] == pytest.approx(squares * len(groups) / (len(groups) - 1))
    assert found.n_blocks[0] == len(groups)
    long, columns = LONG.assign(text=names[LONG.task]), {"unit": "task", "value": "score", "factors": ("model", "size")}
    assert estimates(long, cluster="text", **columns).contributions[0] == pytest.approx(found.contributions[0])


def test_trials__are_units_by_the_largest_cluster_and_the_range_of_all_numbers():
    frame = pd.DataFrame({"a": np.ones(100), "b": np.r_[np.zeros(99), 5.0], "text": np.arange(100) // 4})
    assert estimates(frame[["a", "b"]]).trials == pytest.approx([20.0, 20.0])
    assert estimates(frame, cluster="text").trials == pytest.approx([5.0, 5.0])
    assert estimates({"a": np.zeros(64)}).trials == pytest.approx([64.0])


def test_units_that_lack_a_number__are_left_out_of_comparisons_with_it_alone():
    frame = pd.DataFrame(VALUES[:, :3], columns=["a", "b", "c"], dtype="Float64")
    frame.loc[[3, 7], "b"] = pd.NA
    table = table_of(frame, Columns(missing="drop"))
    numbers = numbers_of(table, [[0, 1], [2]])
    kept = np.delete(VALUES, [3, 7], axis=0)
    means = [*kept[:, :2].mean(axis=0), VALUES[:, 2].mean()]
    assert numbers.estimates.values == pytest.approx(means) and numbers.estimates.n_blocks.tolist() == [88, 88, 90]
    assert numbers.missing.sum(axis=0).tolist() == [0, 2, 0] and numbers.used.all()
    alone = numbers_of(table._replace(missing="refuse"), [[0], [2]])
    assert alone.estimates.values[[0, 2]] == pytest.approx(VALUES[:, [0, 2]].mean(axis=0)) and not alone.missing.any()


def test_conditions_without_a_common_unit__are_independent_and_lack_nothing():
    """Two experiments of their own units, with two conditions each: paired within one and not across."""
    apart = LONG[(LONG["size"] == 10) | (LONG.task < 70)].assign(run=lambda rows: rows["size"] * 100 + rows.task)
    found = estimates(apart, unit="run", value="score", factors=("model", "size"))
    at = [found.conditions.index(each) for each in CONDITIONS]
    own = VALUES[:, [0, 2]], VALUES[:70, [1, 3]]
    expected = np.zeros((4, 4))
    expected[np.ix_([0, 2], [0, 2])], expected[np.ix_([1, 3], [1, 3])] = (np.cov(x.T) / len(x) for x in own)
    assert found.covariance(at) == pytest.approx(expected, abs=1e-12)
    assert found.n_blocks[at].tolist() == [90, 70, 90, 70]


PAIR = pd.DataFrame(VALUES[:, :2], columns=["a", "b"])
HOLED, TWICE = PAIR.copy(), pd.concat([LONG, LONG.iloc[[0]]])
HOLED.loc[4, "b"] = np.nan


@pytest.mark.parametrize(
    ("numbers", "columns", "said"),
    [
        (HOLED, {}, 'unit 4, condition = b: no number, and 1 of 90 units lack one; mend that, or state missing'),
        (PAIR.replace({VALUES[2, 0]: np.inf}), {}, "unit 2, condition = a: infinite"),
        (TWICE, {"unit": "task", "value": "score"}, "task = 0, model = A, size = 10: two numbers"),
        (LONG, {"unit": "tusk", "value": "score"}, "unit = 'tusk': no column of the numbers; did you mean \"task\"?"),
        (LONG, {"value": "score"}, "unit: missing; name the column of units"),
        (LONG[["task", "score"]], {"unit": "task", "value": "score"}, "factors: none"),
        (PAIR.assign(t=[0, *range(89)]), {"unit": "t"}, "two rows; give one for each unit, state value, or state t as"),
        (PAIR.assign(c=["0.5", "1,5"] * 45), {}, "no real numbers ('1,5' is none)"),
        (LONG.assign(note=range(360)), {"unit": "task", "value": "score"},
         "360 conditions in 360 rows, told apart by note; name in factors"),
        (LONG.replace({"model": {"B": None}}), {"unit": "task", "value": "score"},
         f"model: empty at task = 0, score = {VALUES[0, 2]}; fill it, or name in factors"),
        (PAIR.assign(row=range(1, 91)), {}, "row: successive integers number the rows and are no condition; state"),
        (LONG[LONG.task < np.where(LONG.model == "A", 45, 0) + 45], {"unit": "task", "value": "score"},
         "45 of 90 units lack one"),
        (PAIR * np.nan, {"missing": "drop"}, "no unit has numbers under condition = a; give them, or select other"),
        (PAIR.assign(c=None), {"cluster": "c"}, "c: empty for a unit"),
        (LONG.assign(c=range(360)), {"unit": "task", "value": "score", "cluster": "c", "factors": ("model", "size")},
         "task = 0: in several clusters"),
        ({"a": [1.0], "b": [1.0, 2.0]}, {}, "give arrays of one length"),
        (PAIR.iloc[:0], {}, "numbers: empty"),
        (VALUES, {}, "numbers of type ndarray"),
        (xr.DataArray(VALUES[:, 0], dims="task"), {}, "numbers: dimensions"),
        (pd.DataFrame(VALUES[:, :2], columns=["a", "a"]), {}, "two columns {'condition': 'a'}"),
        (pd.DataFrame(VALUES[:, :2] * 1j, columns=["a", "b"]), {}, "a: of type complex128, no real numbers"),
    ],
)  # fmt: skip
def test_mistakes__are_one_line_that_says_where(numbers, columns, said):
    with pytest.raises(UserError) as refused:
        estimates(numbers, **columns)
    assert said in str(refused.value) and "\n" not in str(refused.value)
