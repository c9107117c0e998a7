"""Part of ``make verify``: does the error over splits of the rows say how estimates differ from seed to seed?

The controls are studies that keep the split of their seed, as all did before rows held out could be a population.
"""

import numpy as np
import pytest
from held_out_studies import DATA_SETS, MEASURES, studies

SEEDS = 120


@pytest.fixture(scope="module")
def found():
    return {name: (studies(name, SEEDS), studies(name, SEEDS // 3, [], n_batches=8)) for name in DATA_SETS}


def test_standard_errors__are_the_standard_deviation_over_seeds(found):
    for name, (over, fixed) in found.items():
        ratios = over.ratio
        print(f"\n{name}: error over standard deviation of {SEEDS} seeds", dict(zip(MEASURES, ratios, strict=True)))
        assert ((ratios >= 0.85) & (ratios <= 1.15)).all()
        assert (fixed.ratio < 0.6).all()


def test_intervals__cover_and_those_given_one_split_do_not(found):
    truths = {name: over.estimates.mean(axis=0) for name, (over, _) in found.items()}
    share, control = (
        np.mean([each[which].coverage(truths[name]) for name, each in found.items()], axis=0) for which in (0, 1)
    )
    print(f"\n{SEEDS * len(found)} studies", dict(zip(MEASURES, share, strict=True)), "given one split", control)
    assert ((share >= 0.93) & (share <= 0.97)).all()
    assert (control < 0.7).all()
