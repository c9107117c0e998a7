"""Part of ``make verify``: tables of a user's own numbers are not judged wrongly more often than at the level."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simstudy
from simstudy.design.claims import LEVEL
from simstudy.judging.claims import read_claims
from simstudy.judging.judged import judgement_of
from simstudy.judging.table import Columns, numbers_of, table_of

Draw = Callable[[np.random.Generator, int], pd.DataFrame]


def looks(first: int, last: int) -> list[int]:
    found = [first]
    while found[-1] < last:
        found.append(min(found[-1] * 5 // 4, last))
    return found


LAWS: Mapping[str, Draw] = {
    "normal": lambda rng, n: pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)}),
    "exponential": lambda rng, n: pd.DataFrame({"a": rng.exponential(size=n), "b": np.ones(n)}),
    "right answers": lambda rng, n: pd.DataFrame({"a": rng.random(n) < 0.7, "b": rng.random(n) < 0.7}),
    "rare events": lambda rng, n: pd.DataFrame({"a": rng.random(n) < 0.004, "b": rng.random(n) < 0.004}),
    "texts": lambda rng, n: pd.DataFrame(
        {"a": np.repeat(rng.normal(size=n // 2 + 1), 2)[:n] + rng.normal(size=n), "b": 0.0, "text": np.arange(n) // 2}
    ),
}
"""Tables whose two conditions have the same mean."""
CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "larger": {"kind": "larger_than", "value": 0.0},
    "near": {"kind": "equals", "value": 0.1, "margin": 0.1},
}
"""Claims with the truth on the boundary: each verdict but "undecided" is wrong."""


def wrong_at_any_look(law: str, claim: str, studies: int, at: Sequence[int]) -> float:
    """Return how often a verdict is given at any look, as `simstudy.judge` gives it, where none is right."""
    rng, wrong = np.random.default_rng(sum(map(ord, law + claim))), 0
    stated = {"c": {**CLAIMS[claim], "where": {"condition": "a"}, "versus": {"condition": "b"}}}
    one = read_claims(stated)[1].claims["c"]
    for _ in range(studies):
        table = LAWS[law](rng, at[-1])
        columns = Columns(cluster="text" if "text" in table else None)
        found = (judgement_of(one, numbers_of(table_of(table[:look], columns)).estimates, 1) for look in at)
        wrong += any(judgement.verdict != "undecided" for judgement in found)
    return wrong / studies


STUDIES = 1000


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_looking_again_after_more_units__keeps_the_level(law, claim):
    rate = wrong_at_any_look(law, claim, STUDIES, looks(64, 4096))
    print(f"\n{law}, {claim}: {100 * rate:.1f} % of {STUDIES} studies wrong at any of {len(looks(64, 4096))} looks")
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / STUDIES) ** 0.5


@pytest.mark.parametrize("looks", ["one", "any"])
@pytest.mark.parametrize("methods", [4, 20])
def test_equal_methods__are_seldom_told_apart(methods, looks):
    rng = np.random.default_rng(methods)
    tables = (pd.DataFrame(rng.normal(size=(100, methods)) + rng.normal(size=(100, 1))) for _ in range(STUDIES))
    rate = sum(simstudy.tied_sets(each, looks=looks).conditions.sets.nunique() > 1 for each in tables) / STUDIES
    print(f"\n{methods} methods, {looks}: some pair told apart in {100 * rate:.1f} % of {STUDIES} tables")
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / STUDIES) ** 0.5
