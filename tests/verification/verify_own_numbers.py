"""Part of ``make verify``: tables of a user's own numbers are judged as studies are, and not more often wrongly."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pydantic import ValidationError

import simstudy
from simstudy.design.claims import LEVEL, BaseClaim
from simstudy.design.document import Design
from simstudy.design.written import known_designs, shipped_folder
from simstudy.execution.store import store_of
from simstudy.judging.claims import ClaimsFile, read_claims
from simstudy.judging.judged import judgement_of
from simstudy.judging.table import Columns, numbers_of, table_of
from simstudy.study import open_state
from simstudy.verdicts.estimates import estimates_of
from simstudy.verdicts.judge import judge

OF_DESIGNS = {"grid", "measure", "index", "these_draws"}
Draw = Callable[[np.random.Generator, int], pd.DataFrame]


def rejudged(design: Design, output: Path) -> Iterator[tuple[xr.Dataset, xr.Dataset]]:
    """Yield verdicts of `simstudy.judge` on the block contributions of a stored study, and those of the study.

    For the claims on each measure of each grid together, but for those that compare with theory or a diversity index.
    """
    state = open_state(design, store_of(design, output))
    state.first_tasks()
    told: dict[int, Any] = {}
    on = {name: (claim.grid, claim.measure, claim.index) for name, claim in design.claims.items() if _own(claim)}
    for (grid, measure, index), names in itertools.groupby(sorted(on, key=lambda name: str(on[name])), key=on.get):
        claims = {name: design.claims[name] for name in names}
        accounts = [account for account in state.accounts if account.planned.grid == grid]
        stated = {name: _own(claim) for name, claim in claims.items()}
        estimates = estimates_of(accounts, measure, index)
        own = simstudy.judge(estimates, stated, factors=design.factors[grid]).dataset
        yield own, judge(design.model_copy(update={"claims": claims}), state.accounts, told)


def _own(claim: BaseClaim) -> dict[str, Any] | None:
    """The entries of a claim as those of one on a table; None if there is no such kind."""
    entries = claim.model_dump(mode="json", exclude=OF_DESIGNS, exclude_none=True)
    try:
        ClaimsFile.model_validate({"claims": {"c": entries}})
    except ValidationError:
        return None
    return entries if "against" not in entries else None


def same(own: xr.Dataset, studys: xr.Dataset) -> bool:
    """Whether all numbers and verdicts are the same to the last digit; words name the measure or the mean."""
    numbers = [name for name, each in studys.data_vars.items() if each.dtype.kind == "f" or name == "verdict"]
    return len(numbers) > 10 and all(_equal(own[name].values, studys[name].values) for name in numbers)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def looks(first: int, last: int) -> list[int]:
    """Units at looks that come with a quarter more units each."""
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
    one = read_claims(stated).claims["c"]
    for _ in range(studies):
        table = LAWS[law](rng, at[-1])
        columns = Columns(cluster="text" if "text" in table else None)
        found = (judgement_of(one, numbers_of(table_of(table[:look], columns)), 1) for look in at)
        wrong += any(judgement.verdict != "undecided" for judgement in found)
    return wrong / studies


STUDIES = 1000


@pytest.mark.parametrize("name", [path.parent.name for path in known_designs()])
def test_shipped_studies__get_their_verdicts_from_their_block_contributions(name, tmp_path, monkeypatch):
    """With few replicates: the verdicts need not be those declared, but both ways must give the same."""
    monkeypatch.chdir(shipped_folder())  # tables have no folder, to which paths of heads are relative
    study = simstudy.Study.of(name)
    few = {"min_replicates": 64, "max_replicates": 64, "stop": "precision"}
    study["profiles"]["quick"]["grids"] = {
        grid: study["profiles"]["quick"].get("grids", {}).get(grid, {}) | {"precision": few} for grid in study["grids"]
    }
    design = simstudy.check(study)["quick"]
    simstudy.run(design, output=tmp_path)
    pairs = list(rejudged(design, tmp_path))
    print(f"\n{name}: {sum(own.sizes['claim'] for own, _ in pairs)} of {len(design.claims)} claims")
    assert all(same(*pair) for pair in pairs)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_looking_again_after_more_units__keeps_the_level(law, claim):
    rate = wrong_at_any_look(law, claim, STUDIES, looks(64, 4096))
    print(f"\n{law}, {claim}: {100 * rate:.1f} % of {STUDIES} studies wrong at any of {len(looks(64, 4096))} looks")
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / STUDIES) ** 0.5
