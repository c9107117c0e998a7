"""Processor time to a relative Monte Carlo error by control variates, known means included, and by plain replicates."""

import itertools
from functools import partial

import numpy as np
from builders import estimated, minimal_cell
from limits import Row, interleaved

from simstudy.attention.expansion import _left_out, known_of
from simstudy.design.document import PlannedCell, Precision
from simstudy.replicates.allocation import is_sooner_plain
from simstudy.replicates.batch import simulate_batch

MEASURES, WANTED = ("mse", "ensemble_variance"), (1e-2, 1e-3)
BATCH, BATCHES = 256, 2
WAYS, LEAST = ("expansion", "none"), 1024
"""Controls, and the fewest replicates: those of a run by default."""
RIDGE = {"kind": "ridge", "amplitude": 2.0}
ATTENTION = ((1.0, 128), (1.0, 1024), (1.414, 1024), (2.0, 1024))
"""Scale of queries and keys of cells with 8 heads of 64 dimensions and 16 queries."""


def _needed(found, measure, wanted):
    """Batches until a measure has the error wanted."""
    return max(LEAST, BATCHES * BATCH * (found.mcse[measure] / found.estimate[measure] / wanted) ** 2) / BATCH


def control_rows():
    """Seconds of plain replicates over those of the way that a run takes, with its pilot."""
    base = {"n_features": 512, "n_heads": 8, "head_dim": 64, "arrangement": "orthogonal", "logits": "dot_product"}
    for (scale, n_keys), regression in itertools.product(ATTENTION, ("zero", RIDGE)):
        queries = {"kind": "gaussian", "count": 16, "scale": scale}
        settings = base | {"bandwidth": "attention", "n_keys": n_keys, "queries": queries, "regression": regression}
        ways = [minimal_cell(**settings, dtype="float32", batch_size=BATCH, control=way) for way in WAYS]
        found = [estimated(each, BATCHES) for each in ways]
        open_cell = minimal_cell(**settings, dtype="float32", control="expansion")
        open_cell.simulation.model_fields_set.discard("control")  # as of a design that states none
        jobs = [partial(simulate_batch, [each], 0) for each in ways]
        jobs += [partial(_left_out.__wrapped__, ways[0]), partial(is_sooner_plain, [_planned(open_cell, "mse", 1e-2)])]
        *times, fixed, pilot = (float(np.median(each)) for each in interleaved(jobs, 3))
        of_logits, target = 2.0 * known_of(ways[0]).log_mass, "noise alone" if regression == "zero" else "2 sin x₁"
        size = f"{n_keys} keys, variance of logits {of_logits.min():.1f} to {of_logits.max():.1f}, {target}"
        for measure, wanted in itertools.product(MEASURES, WANTED):
            seconds = [t * _needed(each, measure, wanted) for t, each in zip(times, found, strict=True)]
            seconds[0] += fixed
            taken = pilot + seconds[is_sooner_plain([_planned(open_cell, measure, wanted)])]
            yield Row("control", size, f"{measure} to {wanted:.1%}", seconds[1] / taken, "times plain replicates")


def _planned(cell, measure, wanted):
    precision = Precision(relative_mcse={measure: wanted}, min_replicates=LEAST)
    return PlannedCell(grid="one", cell=cell, precision=precision, by_query=False, exact=False)
