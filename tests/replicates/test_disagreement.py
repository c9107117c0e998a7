"""How little heads agree, and how well one is told by the others: against loops over keys, redraws and head pairs."""

import itertools
import math

import numpy as np
import pytest
from builders import estimated, minimal_cell
from test_performance import STATISTICS, blocks_of
from test_performance import sample as sample

from simstudy.data.heads import key_projections, overlap
from simstudy.data.shared import SharedData
from simstudy.design.measures import INDICES
from simstudy.replicates.performance import performance

NOISE = {"regression": "zero", "noise_sd": 0.7, "n_keys": 12, "arrangement": "rotated", "angle": 50.0, "n_heads": 3,
         "head_dim": 1, "batch_size": 16, "queries": {"kind": "points", "points": [[0.0], [0.5, -1.0]]}}  # fmt: skip


def measured(**settings):
    return estimated(minimal_cell(**NOISE | settings))


def index(found, name):
    return found.estimate["hdi"][INDICES.index(name)], found.mcse["hdi"][INDICES.index(name)]


def attended_together():
    cell = minimal_cell(**NOISE)
    n, b, d = cell.data.n_keys, cell.bandwidth, cell.data.n_features
    points = [[*given, *[0.0] * (d - len(given))] for given in NOISE["queries"]["points"]]
    heads, total = key_projections(cell), []
    for keys, x in itertools.product(SharedData(cell, 0, 16).keys(n), points):
        weights = []
        for head in heads:
            mass = [math.exp(-sum(((keys[:, i] - x) @ head) ** 2) / (2 * b * b)) for i in range(n)]
            weights.append([each / sum(mass) for each in mass])
        total += [sum(w * v for w, v in zip(one, other, strict=True)) for one in weights for other in weights]
    return sum(total) / len(total)


def test_disagreement_of_positions__is_the_error_under_noise_alone():
    found = measured()
    value, error = index(found, "disagreement_positions")
    assert value == pytest.approx(-attended_together(), rel=1e-6)
    assert found.estimate["mse"] == pytest.approx(-(0.7**2) * value, rel=1e-9)
    assert error == pytest.approx(found.mcse["mse"] / 0.7**2, rel=1e-9) and error > 0
    # The control: with a signal the error is another; the overlap of attention is the same.
    signal = measured(regression="linear")
    assert index(signal, "disagreement_positions")[0] == pytest.approx(value, rel=1e-9)
    assert signal.estimate["mse"] > 1.5 * found.estimate["mse"]


@pytest.mark.parametrize(
    "settings", [{"noise_treatment": "drawn"}, {"noise_sd": 0.0}, {"noise": {"kind": "heteroscedastic"}}], ids=str
)
def test_disagreement_of_positions__is_blank_where_moments_do_not_tell_it(settings):
    assert np.isnan(index(measured(**settings), "disagreement_positions")[0])


def test_disagreement_of_outputs__is_the_cosine_over_redraws_and_queries(sample):
    errors, target = sample
    found = performance(blocks_of(errors, target, len(errors)), np.full(3, 1 / 3), STATISTICS)
    outputs = errors + target[:, None]
    cosines = []
    for h, g in itertools.product(range(3), repeat=2):
        one, other = outputs[..., h].ravel(), outputs[..., g].ravel()
        cosines.append(sum(one * other) / math.sqrt(sum(one * one) * sum(other * other)))
    value, error = index(found, "disagreement_outputs")
    assert value == pytest.approx(-np.mean(cosines), abs=0.2 * error)
    # The control: errors in the place of outputs are another thing by far.
    centred = np.mean([np.corrcoef(errors[:, q].T) for q in range(2)])
    assert abs(value + centred) > 5 * error


def test_disagreement_of_values__is_that_of_the_maps_of_heads():
    assert index(measured(), "disagreement_values") == (-1.0, 0.0)
    cell = minimal_cell(**NOISE, value_projections={"kind": "random", "n_components": 6, "value_dim": 3})
    found, products = estimated(cell), overlap(cell)
    cosines = [products[h][g] / math.sqrt(products[h][h] * products[g][g]) for h in range(3) for g in range(3)]
    value, error = index(found, "disagreement_values")
    assert value == pytest.approx(-np.mean(cosines), rel=1e-12) and error < 1e-12
    assert value > -0.9
    # Values and positions enter the error as a product of the two, pair by pair.
    assert found.estimate["mse"] != pytest.approx(-(0.7**2) * index(found, "disagreement_positions")[0], rel=0.01)


def test_linear_predictability__is_that_of_regressions_on_the_other_heads(sample):
    errors, target = sample
    single = performance(blocks_of(errors[:, :1], target[:1], len(errors)), np.ones(3), STATISTICS)
    values = errors[:, 0] - errors[:, 0].mean(axis=0)
    explained = []
    for h in range(3):
        others = np.delete(values, h, axis=1)
        rest = values[:, h] - others @ np.linalg.lstsq(others, values[:, h], rcond=None)[0]
        explained.append(1 - (rest @ rest) / (values[:, h] @ values[:, h]))
    value, error = (getattr(single, part)["linear_predictability"] for part in ("estimate", "mcse"))
    assert value == pytest.approx(np.mean(explained), abs=0.2 * error) and 0 < error < 0.1
    correlation = np.corrcoef(values.T)[np.triu_indices(3, 1)]
    assert abs(np.mean(explained) - (correlation**2).mean()) > 3 * error  # of three heads it is no mean of pairs
