"""What is said of designs comes from the records that validate them: the same settings, alternatives and refusals."""

from __future__ import annotations

import copy
import tomllib

import jsonschema
import pytest
from builders import DESIGN
from test_load import DESIGNS

from simstudy.design.schema import CHOICES, RECORDS, describe, json_schema
from simstudy.design.settings import TABLE_OF
from simstudy.errors import UserError

TABLES = tomllib.loads(DESIGN)


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_schema__accepts_shipped_designs(schema, path):
    assert list(schema.iter_errors(tomllib.loads(path.read_text()))) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("data", "n_keyz"), 3),
        (("data", "n_keys"), 0),
        (("data", "regression"), "rigde"),
        (("data", "regression"), "sum"),  # which needs terms
        (("data", "regression"), {"kind": "ridge", "amplitud": 2.0}),
        (("estimator", "bandwidth"), "wide"),
        (("grids", "angles", "factors", "angel"), [1]),
        (("grids", "angles", "factors", "angle"), [91]),
        (("grids", "angles", "factors", "angle"), {"range": [0]}),
        (("grids", "angles", "settings"), {"noise_sd": -1}),
        (("claims", "mse-falls", "direction"), "down"),
        (("figures", "mse", "z"), "mse"),
        (("profiles", "full", "data"), {"n_keys": 0}),
    ],
)
def test_schema__refuses_what_the_records_refuse(schema, place, value):
    tables = copy.deepcopy(TABLES)
    assert list(schema.iter_errors(tables)) == []
    node = tables
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = value
    assert list(schema.iter_errors(tables))


def test_every_setting_and_alternative__is_described():
    for name in (*RECORDS, *TABLE_OF, *CHOICES, "ridge", "larger_than", "curve", "correlation_floor", "kq_svd"):
        assert all(each.title and each.meaning is not None for each in describe(name)), name
    assert [each.title for each in describe("student_t")] == [
        'key_distribution: kind = "student_t"',
        'noise: kind = "student_t"',
    ]
    (ridge,) = describe("ridge")
    assert "amplitude · wave" in ridge.meaning
    assert ("amplitude", "a finite amplitude", "1.0") in ridge.entries
    assert ("n_keys", "number of training pairs n, at least 1 and at most 2³²", "required") in describe("data")[
        0
    ].entries


def test_unknown_setting__is_refused_with_the_nearest():
    with pytest.raises(UserError, match='regresion: nothing that a design states; did you mean "regression"'):
        describe("regresion")
