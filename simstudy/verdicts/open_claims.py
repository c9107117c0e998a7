"""How many batches the claims that are still open want of each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simstudy.design.claims import BaseClaim
from simstudy.design.document import Design
from simstudy.design.feasibility import batches_of
from simstudy.execution.account import Account
from simstudy.verdicts.comparisons import Comparison, Predictions
from simstudy.verdicts.evidence import anytime_score
from simstudy.verdicts.judge import judge_claim, without_error
from simstudy.verdicts.predictions import Told, predict


class OpenClaims:
    """The rule by which replicates are spent on verdicts: batches wanted of each cell, given the accounts of all.

    A claim whose verdict is out wants nothing.  Of one that is open, each comparison that is not yet proven wants of
    all its cells, so that these stay paired, as many batches as bring its score to what a verdict takes: the score
    grows like the root of their number.  Grids that ask for precision alone are left as they are.

    Parameters
    ----------
    design
        That of the cells.
    told
        What theories say of its cells so far; what claims ask for is added.
    """

    def __init__(self, design: Design, told: Told | None = None) -> None:
        self._design = design
        self._told: Told = {} if told is None else told
        self._theories: dict[str, Predictions] = {}

    def __call__(self, accounts: Sequence[Account]) -> list[int]:
        """Return the batches wanted of each cell, no fewer than its target."""
        wanted = [account.target for account in accounts]
        for name, claim in self._design.claims.items():
            positions = [i for i, account in enumerate(accounts) if account.planned.grid == claim.grid]
            inside = [accounts[i] for i in positions]
            if inside[0].planned.precision.stop == "precision":
                continue
            theory = self._theory(name, claim, inside)
            factors, n_claims = self._design.factors[claim.grid], len(self._design.claims)
            judged = judge_claim(claim, inside, factors, theory, n_claims, without_error(claim, inside))
            if judged.verdict != "inconclusive":
                continue
            for comparison in judged.comparisons:
                for cell, target in _targets(comparison, inside, judged.level):
                    wanted[positions[cell]] = max(wanted[positions[cell]], target)
        return wanted

    def _theory(self, name: str, claim: BaseClaim, accounts: Sequence[Account]) -> Predictions | None:
        """What theory says of the cells of a claim; it does not change with the replicates."""
        source = getattr(claim, "source", None)
        if source is None:
            return None
        if name not in self._theories:
            told = [theories[source] for theories in predict([a.planned for a in accounts], self._told)]
            values = np.array([float(theory.measures.get(claim.measure, np.nan)) for theory in told])
            errors = np.array([float(theory.errors.get(claim.measure, 0.0)) for theory in told])
            self._theories[name] = Predictions(values, errors)
        return self._theories[name]


def _targets(comparison: Comparison, accounts: Sequence[Account], level: float) -> list[tuple[int, int]]:
    """Cells of a comparison with the batches that it wants of them; none if it is proven, or cannot be."""
    if comparison.evidence.in_favour < level or not comparison.cells:
        return []
    cells = [accounts[cell] for cell in comparison.cells]
    done, n_blocks = (
        max(each.done for each in cells),
        min(p.n_blocks if (p := each.performance) else 0 for each in cells),
    )
    p_value = min(float(comparison.evidence.in_favour), float(comparison.evidence.against))
    ratio = anytime_score(level, max(n_blocks, 1)) / anytime_score(p_value, max(n_blocks, 1))
    further = max(math.ceil(done * ratio**2), done + 1)
    ceilings = [batches_of(each.planned.precision.max_replicates, each.batch_size) for each in cells]
    return [(cell, min(further, ceiling)) for cell, ceiling in zip(comparison.cells, ceilings, strict=True)]
