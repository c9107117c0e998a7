"""Simulated against exact moments of one configuration, in units of error, and the verdict on many of them."""

from typing import NamedTuple

import numpy as np
from configurations import Configuration
from numpy.typing import NDArray
from scipy import stats

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.settings.cell import Cell
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import Moments, controlled, stack
from simstudy.replicates.performance import performance
from simstudy.theory import exact_moments, leading_order

LEVEL = 0.01
# Leading order at so many keys has nothing but its leading term.
MANY_KEYS = 4 * 10**9


class Value(NamedTuple):
    """A statistic and its error: numerical of a theory, Monte Carlo (from so many blocks) of a simulation."""

    value: float
    error: float
    n_blocks: int = 0


class Verdict(NamedTuple):
    """Tests of z-scores against N(0, 1), each at level `LEVEL`: p-values, and values with their bounds."""

    anderson_darling: float
    kolmogorov_smirnov: float
    largest: float
    largest_bound: float
    mean: float
    mean_bound: float
    sd: float
    sd_bounds: tuple[float, float]

    @property
    def failures(self) -> list[str]:
        """Names of the tests that fail; z-scores that are not finite fail them all."""
        passed = {
            "Anderson-Darling": self.anderson_darling > LEVEL,
            "Kolmogorov-Smirnov": self.kolmogorov_smirnov > LEVEL,
            "largest |z|": self.largest < self.largest_bound,
            "mean": abs(self.mean) < self.mean_bound,
            "sd": self.sd_bounds[0] < self.sd < self.sd_bounds[1],
        }
        return [name for name, good in passed.items() if not good]


def simulated(configuration: Configuration) -> Value:
    """Statistic of a configuration by Monte Carlo, averaged over queries."""
    cell = configuration.cell
    blocks, _ = controlled(stack([simulate_batch([cell], batch)[0] for batch in range(configuration.n_batches)]))
    assert not blocks.failed.size
    if configuration.statistic == "bias":
        return _mean_error(blocks, head=1)
    measured = performance(blocks, np.array(cell.weights), cell.statistics)
    pair = _pair(configuration.statistic)
    return Value(
        float(measured.estimate["head_covariance"][pair]),
        float(measured.mcse["head_covariance"][pair]),
        measured.n_blocks,
    )


def exact(configuration: Configuration) -> Value:
    """Statistic of a configuration by theory; its error is the sum of numerical errors."""
    prediction = exact_moments(configuration.cell, *_heads(configuration.cell))
    assert prediction.reason == "", f"configuration {configuration.number}: {prediction.reason}"
    assert prediction.self_check.max() < 1e-8
    if configuration.statistic == "bias":
        return Value(float(prediction.bias[:, 1].mean()), float(prediction.bias_error[:, 1].mean()))
    index = (slice(None), *_pair(configuration.statistic))
    return Value(float(prediction.covariance[index].mean()), float(prediction.covariance_error[index].mean()))


def noise_only(configuration: Configuration) -> Value:
    """Wrong on purpose: the part of a variance or covariance that is due to noise."""
    return exact(configuration._replace(cell=_with_data(configuration.cell, regression="zero")))


def leading(configuration: Configuration) -> Value:
    """Wrong on purpose at small n: the terms of lowest order in 1/n; NaN where even many keys leave others."""
    cell = _with_data(configuration.cell, n_keys=MANY_KEYS)
    prediction = leading_order(cell, *_heads(cell))
    if configuration.statistic == "bias":
        return Value(float(prediction.bias[:, 1].mean()), 0.0)
    index = (slice(None), *_pair(configuration.statistic))
    return Value(float(prediction.covariance[index].mean()) * MANY_KEYS / configuration.cell.data.n_keys, 0.0)


def turned(configuration: Configuration) -> Value:
    """Wrong on purpose: the two heads are one degree further apart."""
    cell = configuration.cell
    heads = cell.heads.model_copy(update={"angle": cell.heads.angle + 1.0})
    return exact(configuration._replace(cell=cell.model_copy(update={"heads": heads})))


def z_score(measured: Value, theory: Value) -> float:
    """Difference over its error, brought from the t distribution of its degrees of freedom to the normal one."""
    t = (measured.value - theory.value) / np.hypot(measured.error, theory.error)
    # Tails that underflow stay large and finite.
    tail = max(stats.t.sf(abs(t), measured.n_blocks - 1), 1e-300)
    return float(np.sign(t) * stats.norm.isf(tail))


def judge(z: NDArray[np.float64]) -> Verdict:
    """Test whether independent z-scores look standard normal."""
    count = len(z)
    chi2 = stats.chi2(count - 1)
    fit = stats.goodness_of_fit(
        stats.norm, z, known_params={"loc": 0.0, "scale": 1.0}, statistic="ad", n_mc_samples=9999, rng=1
    )
    return Verdict(
        anderson_darling=float(fit.pvalue),
        kolmogorov_smirnov=float(stats.kstest(z, "norm").pvalue),
        largest=float(np.abs(z).max()),
        largest_bound=float(stats.norm.isf(LEVEL / (2 * count))),
        mean=float(z.mean()),
        mean_bound=float(stats.norm.isf(LEVEL / 2) / np.sqrt(count)),
        sd=float(z.std(ddof=1)),
        sd_bounds=tuple(float(np.sqrt(chi2.ppf(q) / (count - 1))) for q in (LEVEL / 2, 1 - LEVEL / 2)),
    )


def _mean_error(blocks: Moments, head: int) -> Value:
    means = blocks.error_sum[:, :, head].mean(axis=1) / blocks.n_defined
    return Value(float(means.mean()), float(stats.sem(means)), len(means))


def _pair(statistic: str) -> tuple[int, int]:
    return {"covariance": (0, 1), "variance": (0, 0)}[statistic]


def _heads(cell: Cell) -> tuple[NDArray, NDArray, NDArray]:
    return key_projections(cell), query_projections(cell), query_points(cell)


def _with_data(cell: Cell, **settings: object) -> Cell:
    tables = cell.model_dump()
    tables["data"] |= settings
    return Cell.model_validate(tables)
