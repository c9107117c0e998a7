"""Rows of a user's data: as they travel with a cell, and split at random; rows that are kept decide what is fitted."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from simstudy.design.settings.choices import FileKeys, FittedRegression, ResidualNoise
from simstudy.errors import UserError, require_extra

if TYPE_CHECKING:
    from simstudy.design.settings.cell import Data

Array = NDArray[np.float64]

MAX_NUMBERS = 1 << 23
"""Most numbers of a data set, 64 MiB: every task of a worker takes a copy along."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that keys are drawn from, and those held out, which are queries.

    Keys (N, d), values of the regression function and residuals (N,), NaN without them; points (M, d) held out, and
    targets (M,), the values there.
    """

    keys: Array
    values: Array
    residuals: Array
    points: Array
    targets: Array

    @cached_property
    def digest(self) -> str:
        """Digest of all contents."""
        residuals = np.concatenate([self.residuals, np.full(len(self.points), np.nan)])
        columns = np.concatenate([self.keys, self.points]), np.concatenate([self.values, self.targets]), residuals
        return _digest(np.column_stack(columns), len(self.points))

    @cached_property
    def keys_digest(self) -> str:
        """Digest of the population's keys: cells that draw from the same ones are paired."""
        return _digest(self.keys, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _digest(table: Array, n_held_out: int) -> str:
    heading = f"{table.shape} {n_held_out} ".encode()
    return hashlib.blake2b(heading + np.ascontiguousarray(table, "<f8").tobytes(), digest_size=16).hexdigest()


FOLDS = 5  # parts of the rows, each predicted by a fit to the others


def split(raw: Rows, data: Data, seed: int, batch: int = 0) -> Rows:
    """Return rows of which some are held out at random, by batch; UserError if too few are left to be fitted."""
    keys, regression = data.key_distribution, data.regression
    assert isinstance(keys, FileKeys)  # no others have rows
    learner = regression.learner if isinstance(regression, FittedRegression) else ""
    return _split(raw, keys.held_out, keys.standardise, learner, isinstance(data.noise, ResidualNoise), seed, batch)


@functools.lru_cache(maxsize=32)
def _split(raw: Rows, held_out: int, standardise: bool, learner: str, crossed: bool, seed: int, batch: int) -> Rows:
    # The raw words of the generator, which no version of NumPy may change.
    order = np.argsort(np.random.Philox(key=seed + (batch << 64)).random_raw(len(raw.keys)), kind="stable")
    out, kept = order[:held_out], np.sort(order[held_out:])
    if len(kept) < 2:
        raise UserError(f"{len(raw.keys)} rows are too few for held_out = {held_out} and 2 others; lower held_out")
    features, values, residuals = raw.keys, raw.values, raw.residuals
    if standardise:
        # A column that is constant except in held-out rows has no scale.
        scale = np.where(np.ptp(features[kept], axis=0) > 0.0, features[kept].std(axis=0), 1.0)
        features = (features - features[kept].mean(axis=0)) / scale
    if not learner:
        return Rows(features[kept], values[kept], residuals[kept], features[out], values[out])
    require_extra("regression", "sklearn", "learners")
    from sklearn.model_selection import KFold, cross_val_predict

    if len(kept) < 2 * FOLDS:
        raise UserError(f"{len(kept)} rows are too few to be fitted; {2 * FOLDS} are needed")
    x, y = features[kept], values[kept]
    with threadpool_limits(1):  # last bits may depend on their number, and so few rows take longer with more
        values, left = _learner(learner).fit(x, y).predict(features), np.full(len(kept), np.nan)
        if crossed:
            # The seed of folds and learners is not that of the study: they are part of how the target is made.
            left = y - cross_val_predict(_learner(learner), x, y, cv=KFold(FOLDS, shuffle=True, random_state=0))
            if not np.ptp(left) > 0.0:
                raise UserError(f"{learner} leaves no residuals; use another noise")
            left = left - left.mean()
    return Rows(x, values[kept], left, features[out], values[out])


def _learner(name: str) -> Any:
    from sklearn import ensemble, linear_model, neighbors

    return {
        "linear": linear_model.LinearRegression(),
        "nearest_neighbours": neighbors.KNeighborsRegressor(n_neighbors=5),
        "random_forest": ensemble.RandomForestRegressor(max_features=1 / 3, min_samples_leaf=5, random_state=0),
        "gradient_boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
    }[name]
