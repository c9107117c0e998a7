"""How many batches the claims that are still open want of each cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from simstudy.design.claims import BaseClaim
from simstudy.design.document import Design
from simstudy.design.feasibility import batches_of
from simstudy.execution.account import Account
from simstudy.replicates.performance import lowest
from simstudy.verdicts.comparisons import Comparison
from simstudy.verdicts.engine import judge_claim
from simstudy.verdicts.evidence import anytime_score
from simstudy.verdicts.measured import on_grid
from simstudy.verdicts.predictions import Told


def wanted_by_claims(design: Design, told: Told, accounts: Sequence[Account]) -> list[int]:
    """Return the batches that bring the score of each open comparison to a verdict, in all its cells alike."""
    wanted = [account.target for account in accounts]
    by_precision = {each.planned.grid for each in accounts if each.planned.precision.stop == "precision"}
    for claim in (claim for claim in design.claims.values() if claim.grid not in by_precision):
        positions, of = on_grid(claim, design, accounts, told)
        judged = judge_claim(claim, of, len(design.claims))
        if judged.verdict == "inconclusive":
            for comparison in judged.comparisons:
                if comparison.cells and _lowered_no_more(claim, [accounts[positions[i]] for i in comparison.cells]):
                    continue
                for cell, target in _targets(comparison, [accounts[i] for i in positions], judged.level):
                    wanted[positions[cell]] = max(wanted[positions[cell]], target)
    return wanted


def _lowered_no_more(claim: BaseClaim, accounts: Sequence[Account]) -> bool:
    """Whether more replicates hardly lower the error of a comparison, as most of it is that of nets."""
    # What nets do to several cells alike cancels in their comparison.
    if len(accounts) > 1 or claim.index is not None or (found := accounts[0].performance) is None:
        return False
    # Without any error a rare exception may be unseen, which further replicates make less likely.
    return bool(0.0 < found.mcse.get(claim.measure, np.inf) <= lowest(found, claim.measure))


def _targets(comparison: Comparison, accounts: Sequence[Account], level: float) -> Iterator[tuple[int, int]]:
    """Cells of a comparison with the batches that it wants of them; none if it is proven, or cannot be."""
    if comparison.evidence.in_favour < level or not comparison.cells:
        return
    cells = [accounts[cell] for cell in comparison.cells]
    done = max(each.done for each in cells)
    n_blocks = max(min(p.n_blocks if (p := each.performance) else 0 for each in cells), 1)
    p_value = min(float(comparison.evidence.in_favour), float(comparison.evidence.against))
    ratio = anytime_score(level, n_blocks) / anytime_score(p_value, n_blocks)
    further = max(math.ceil(done * ratio**2), done + 1)
    for cell, each in zip(comparison.cells, cells, strict=True):
        yield cell, min(further, batches_of(each.planned.precision.max_replicates, each.batch_size))
