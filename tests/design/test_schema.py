"""What is said of designs comes from the records that validate them: the same settings, alternatives and refusals."""

import pytest

from simstudy.design.schema import CHOICES, RECORDS, describe
from simstudy.design.settings.cell import TABLE_OF
from simstudy.errors import UserError


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
    n_keys = ("n_keys", "number of training pairs n, at least 1 and at most 2³²", "required")
    assert n_keys in describe("data")[0].entries
    said = {name: what for name, what, _ in describe("estimator")[0].entries}
    kinds = "softmax, entmax, sparsemax, top_k, relu, compact or local_linear"
    assert said["logits"] == '"distance" or "dot_product"'
    assert said["normaliser"] == f"how logits become weights: {kinds}"


def test_unknown_setting__is_refused_with_the_nearest():
    with pytest.raises(UserError, match='regresion: nothing that a design states; did you mean "regression"'):
        describe("regresion")
