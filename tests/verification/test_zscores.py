"""Do Monte Carlo z-scores of exact moments look standard normal, and of wrong ones not? Do theories hold to their edge?

Configurations are drawn by seeds, so a verdict holds until the code or the random streams change.  The edge is found by
the theory itself: the least number of keys for which it gives no reason against itself.
"""

import multiprocessing
import random
from bisect import bisect_left
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from builders import arrays_of, batches_of, minimal_cell, planned
from numpy.typing import NDArray
from scipy import stats

from simstudy.design.settings.cell import Cell
from simstudy.replicates.moments import controlled, stack
from simstudy.replicates.performance import performance
from simstudy.theory import exact_moments, leading_order
from simstudy.theory.leading import NEXT_TERM_LIMIT
from simstudy.verdicts.predictions import Theory, predict

N_CONFIGURATIONS = 270
# Beyond those that quadrature covers: numbers from N_CONFIGURATIONS on.
N_QUASI_MONTE_CARLO = 30
STATISTICS, PAIR = ("covariance", "variance", "bias"), {"covariance": (0, 1), "variance": (0, 0)}

N_KEYS = (3, 4, 6, 10, 20, 50, 100, 300)
ANGLES = (0.0, 10.0, 30.0, 45.0, 60.0, 80.0, 90.0)
# Narrow to wide; narrower ones need more quadrature nodes as the dimension grows.
BANDWIDTHS = {
    "distance": {1: (0.3, 0.6, 1.2), 2: (0.8, 1.2, 2.0), 4: (1.5, 2.0, 3.0)},
    "dot_product": {1: (0.6, 1.0, 2.0), 2: (0.8, 1.0, 2.0), 4: (0.9, 1.2, 2.0)},
}
LINEAR = {"kind": "linear", "coefficients": [1.0, -0.5]}
WAVE = {"kind": "ridge", "wave": "cos", "frequency": 1.5, "direction": [1.0, 2.0]}
REGRESSIONS = (
    {"kind": "zero"},
    LINEAR,
    {"kind": "quadratic", "coefficients": [0.4]},
    {"kind": "ridge", "direction": [1.0, -1.0, 0.5]},
    WAVE,
    {"kind": "additive", "n_active": 3, "decay": "power", "rate": 1.0},
    {"kind": "interaction", "coordinates": [1, 3]},
    {"kind": "sum", "terms": [LINEAR, WAVE, {"kind": "quadratic"}]},
)
NOISES = ({"kind": "gaussian"}, {"kind": "student_t", "df": 5.0}, {"kind": "heteroscedastic", "strength": 2.0})
KEYS = (
    {"kind": "gaussian"},
    {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.4},
    {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.7},
)
OTHER_KEYS = (
    {"kind": "sphere", "radius": 1.7},
    {"kind": "student_t", "df": 9.0},
    {"kind": "mixture", "separation": 3.0},
    {"kind": "mixture", "n_components": 3, "separation": 2.0},
)
QUERIES = (
    {"kind": "points", "points": [[0.7, -0.4, 0.3]]},
    {"kind": "points", "points": [[0.3, 0.5], [-1.2, 0.4, 0.8]]},
    {"kind": "gaussian", "count": 2, "scale": 0.8},
)
LEVEL = 0.01
# Leading order at so many keys has nothing but its leading term.
MANY_KEYS = 4 * 10**9
# With noise integrated out, so that fewer kernels are compiled.
NUMBERS = (1, 3, 14, 15, 16, 19)
CONTROLS = ("z_noise_dropped", "z_signal_dropped", "z_leading_order")
MOST = 3000  # largest number of keys that is simulated: beyond, replicates cost too much
RIDGE = {"kind": "ridge", "frequency": 1.5}
RADIAL = {"kind": "quadratic", "coefficients": [0.3]}
FAR = {"kind": "points", "points": [[1.4, -0.9, 0.6]]}


class Configuration(NamedTuple):
    """A cell, the statistic of its two heads that is compared, and the number of batches that are simulated."""

    number: int
    cell: Cell
    statistic: str
    n_batches: int = 16

    def averaged(self, bias: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
        """Mean of the statistic over queries, by a theory or its error."""
        place = (slice(None), *PAIR.get(self.statistic, ()))
        return float(bias[:, 1].mean() if self.statistic == "bias" else covariance[place].mean())


def configuration(number: int) -> Configuration:
    """Draw the levels of every factor; the number is the seed of the levels and of the simulation.

    From `N_CONFIGURATIONS` on keys are not Gaussian.
    """
    draw = random.Random(number)
    statistic = STATISTICS[number % len(STATISTICS)]
    n_keys, p = draw.choice(N_KEYS), draw.choice((1, 1, 2, 4))
    logits = draw.choice(("distance", "dot_product"))
    other = OTHER_KEYS[number % len(OTHER_KEYS)] if number >= N_CONFIGURATIONS else None
    if other and other["kind"] != "sphere":
        logits = "distance"
    regression, noise = draw.choice(REGRESSIONS), draw.choice(NOISES)
    treatment = draw.choice(("integrated", "drawn"))
    if noise["kind"] == "student_t":
        # Squares of drawn heavy tails would have no variance to speak of, and so no Monte Carlo error.
        treatment = "integrated"
    if regression["kind"] == "zero" and treatment == "integrated" and statistic == "bias":
        # Nothing random would be left.
        statistic = "covariance"
    features, known = draw.choice((max(3, 2 * p), 2 * p + 2)), treatment == "integrated" and other is None
    # The narrowest are for quadrature.
    bandwidth = draw.choice(BANDWIDTHS[logits][p][1 if other else 0 :])
    settings = {"n_keys": n_keys, "head_dim": p, "n_features": features, "logits": logits, "bandwidth": bandwidth}
    settings |= {"regression": regression, "noise": noise, "noise_treatment": treatment, "seed": number}
    settings |= {"key_distribution": other or draw.choice(KEYS), "queries": draw.choice(QUERIES)}
    # The fewer keys, the more skewed the estimates, and the cheaper.
    settings |= {"batch_size": 1024 if n_keys >= 50 else 4096} | _arrangement(draw, p)
    # Last, so that other levels are drawn alike with it and without.
    cell = minimal_cell(**settings, control=draw.choice(("none", "expansion")) if known else "none")
    # Quasi-Monte Carlo takes longer than the simulation that it is compared with: that may as well be precise.
    return Configuration(number, cell, statistic, n_batches=32 if other else 16)


def _arrangement(draw: random.Random, head_dim: int) -> dict[str, Any]:
    kind = draw.choice(("rotated", "rotated", "principal_angles", "haar"))
    if kind == "rotated":
        return {"arrangement": kind, "angle": draw.choice(ANGLES)}
    if kind == "principal_angles":
        return {"arrangement": kind, "principal_angles": sorted(draw.choices(ANGLES, k=head_dim))}
    return {"arrangement": kind, "query_projections": draw.choice(("same", "haar"))}


class Value(NamedTuple):
    """A statistic and its error: numerical of a theory, Monte Carlo (from so many blocks) of a simulation."""

    value: float
    error: float
    n_blocks: int = 0


def simulated(configuration: Configuration) -> Value:
    cell = configuration.cell
    blocks, _ = controlled(stack(batches_of(cell, configuration.n_batches)))
    assert not blocks.failed.size
    if configuration.statistic == "bias":
        means = blocks.error_sum[:, :, 1].mean(axis=1) / blocks.n_defined
        return Value(float(means.mean()), float(stats.sem(means)), len(means))
    measured = performance(blocks, np.array(cell.weights), cell.statistics)
    place = PAIR[configuration.statistic]
    value, error = (each["head_covariance"][place] for each in (measured.estimate, measured.mcse))
    return Value(float(value), float(error), measured.n_blocks)


def exact(configuration: Configuration) -> Value:
    prediction = exact_moments(configuration.cell, *arrays_of(configuration.cell))
    assert prediction.reason == "", f"configuration {configuration.number}: {prediction.reason}"
    assert prediction.self_check.max() < 1e-8
    error = configuration.averaged(prediction.bias_error, prediction.covariance_error)
    return Value(configuration.averaged(prediction.bias, prediction.covariance), error)


def noise_only(configuration: Configuration) -> Value:
    """Wrong on purpose: the part of a variance or covariance that is due to noise."""
    return exact(configuration._replace(cell=_with_data(configuration.cell, regression="zero")))


def leading(configuration: Configuration) -> Value:
    """Wrong on purpose at small n: the terms of lowest order in 1/n; NaN where even many keys leave others."""
    cell = _with_data(configuration.cell, n_keys=MANY_KEYS)
    prediction = leading_order(cell, *arrays_of(cell))
    more = 1.0 if configuration.statistic == "bias" else MANY_KEYS / configuration.cell.data.n_keys
    return Value(configuration.averaged(prediction.bias, prediction.covariance) * more, 0.0)


def z_score(measured: Value, theory: Value) -> float:
    """Difference over its error, brought from the t distribution of its degrees of freedom to the normal one."""
    t = (measured.value - theory.value) / np.hypot(measured.error, theory.error)
    # Tails that underflow stay large and finite.
    return float(np.sign(t) * stats.norm.isf(max(stats.t.sf(abs(t), measured.n_blocks - 1), 1e-300)))


def judge(z: NDArray[np.float64]) -> list[str]:
    """Names of the tests, each at level `LEVEL`, by which independent z-scores do not look standard normal."""
    count, chi2 = len(z), stats.chi2(len(z) - 1)
    known = {"loc": 0.0, "scale": 1.0}
    fit = stats.goodness_of_fit(stats.norm, z, known_params=known, statistic="ad", n_mc_samples=999, rng=1)
    low, high = (np.sqrt(chi2.ppf(q) / (count - 1)) for q in (LEVEL / 2, 1 - LEVEL / 2))
    passed = {
        "Anderson-Darling": fit.pvalue > LEVEL,
        "Kolmogorov-Smirnov": stats.kstest(z, "norm").pvalue > LEVEL,
        "largest |z|": np.abs(z).max() < stats.norm.isf(LEVEL / (2 * count)),
        "mean": abs(z.mean()) < stats.norm.isf(LEVEL / 2) / np.sqrt(count),
        "sd": low < z.std(ddof=1) < high,
    }
    failed = [name for name, good in passed.items() if not good]
    print(f"\n{count} z, largest {np.abs(z).max():.2f}, mean {z.mean():+.3f}, sd {z.std(ddof=1):.3f}; {failed}")
    return failed


def _with_data(cell: Cell, **settings: object) -> Cell:
    return cell.model_copy(update={"data": type(cell.data).model_validate(dict(cell.data) | settings)})


@pytest.fixture(scope="module")
def runs():
    return [(one, simulated(one)) for one in [configuration(number)._replace(n_batches=4) for number in NUMBERS]]


def test_exact_moments_agree_with_simulation(runs):
    z = [z_score(measured, exact(chosen)) for chosen, measured in runs]
    assert np.abs(z).max() < stats.norm.isf(0.01 / (2 * len(z)))


@pytest.mark.parametrize(("wrong", "number"), [(leading, 3), (noise_only, 1)])
def test_a_wrong_theory_is_caught(runs, wrong, number):
    chosen, measured = runs[NUMBERS.index(number)]
    assert abs(z_score(measured, wrong(chosen))) > stats.norm.isf(0.0005)


def test_verdict_is_strict_but_accepts_normal_scores():
    z = stats.norm.ppf((np.arange(250) + 0.5) / 250)
    assert judge(z) == [] and judge(z + 0.5) and judge(1.3 * z)
    assert "largest |z|" in judge(np.append(z, 5.0))


def row(number: int) -> dict[str, Any]:
    chosen = configuration(number)
    measured, theory = simulated(chosen), exact(chosen)
    first = leading(chosen)
    wrong = dict.fromkeys(CONTROLS, np.nan)
    if np.isfinite(first.value):
        wrong["z_leading_order"] = z_score(measured, first)
    if chosen.statistic != "bias":
        noise = noise_only(chosen)
        signal = Value(theory.value - noise.value, theory.error + noise.error)
        wrong |= {"z_noise_dropped": z_score(measured, signal), "z_signal_dropped": z_score(measured, noise)}
    return {"numerical_error": theory.error, "mcse": measured.error, "z": z_score(measured, theory), **wrong}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    # Processes of their own: quadrature does not release the interpreter for long.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        return pd.DataFrame(pool.map(row, range(N_CONFIGURATIONS + N_QUASI_MONTE_CARLO), chunksize=2))


@pytest.mark.rare
def test_z_scores_of_exact_moments_look_standard_normal_also_of_keys_that_are_not_gaussian(table):
    z = table["z"].to_numpy()
    assert len(z) >= 200 and np.isfinite(z).all()
    # Numerical error of quadrature is a negligible part of the comparison, that of quasi-Monte Carlo is a part of it.
    share = table["numerical_error"] / table["mcse"]
    assert (share[:N_CONFIGURATIONS] < 0.01).all() and share[N_CONFIGURATIONS:].median() < 0.5
    assert judge(z) == []
    other = table[N_CONFIGURATIONS:]
    assert judge(other["z"].to_numpy()) == [] and judge(other["z_signal_dropped"].fillna(other["z"]).to_numpy())


@pytest.mark.rare
@pytest.mark.parametrize("column", CONTROLS)
def test_a_wrong_theory_fails(table, column):
    """Where the wrong theory says nothing of its own, the z-scores of the right one stay in."""
    assert len(judge(table[column].fillna(table["z"]).to_numpy())) >= 2


def near_leading(draw: random.Random) -> dict[str, Any]:
    """Softmax heads with any keys, target, noise and query that the expansion is derived for."""
    p, logits = draw.choice((1, 1, 2, 4, 8)), draw.choice(("distance", "distance", "dot_product"))
    narrow = {"distance": (0.1, 0.3, 0.5, 1.0), "dot_product": (0.7, 0.9, 1.2)}[logits]
    return {
        "head_dim": p, "n_features": max(3, 2 * p), "logits": logits, "bandwidth": draw.choice(narrow) * p**0.5,
        "regression": draw.choice(REGRESSIONS), "noise": draw.choice(NOISES), "key_distribution": draw.choice(KEYS),
        "queries": draw.choice((*QUERIES, FAR)), "arrangement": "rotated", "angle": draw.choice((0.0, 30.0, 90.0)),
    }  # fmt: skip


def near_compact(draw: random.Random) -> dict[str, Any]:
    """Compact kernels of any power and dimension, windows from a few keys to all of them."""
    p, power = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 3, 10, 100))
    window = draw.choice((0.5, 1.0, 1.5)) * (p * power) ** 0.5
    zero = draw.choice((True, False))
    return {
        "head_dim": p, "n_features": max(3, 2 * p), "arrangement": draw.choice(("aligned", "orthogonal")),
        "normaliser": {"kind": "compact", "power": power, "window": window},
        "regression": "zero" if zero else RADIAL, "queries": FAR if zero else "origin",
    }  # fmt: skip


def near_exact(draw: random.Random) -> dict[str, Any]:
    """Fewest keys, narrowest kernels, farthest queries and most dimensions that quadrature takes."""
    p = draw.choice((1, 2, 4, 8, 16))
    return {
        "n_keys": draw.choice((1, 2, 3)), "head_dim": p, "n_features": max(3, p), "n_heads": 1,
        "bandwidth": draw.choice((0.02, 0.1, 0.5)) * p**0.5, "batch_size": 4096,
        "regression": draw.choice((RIDGE, RADIAL) if p <= 2 else ("zero",)), "queries": draw.choice((FAR, "origin")),
    }  # fmt: skip


def theory_of(cell: Cell, source: str) -> Theory:
    (found,) = predict([planned(cell, exact=source == "exact")])
    return found[source]


def at_edge(settings: dict[str, Any]) -> Cell | None:
    """Return the smallest cell for which leading order says that it holds; None if that is too large."""

    def holds(size: int) -> bool:
        measures = theory_of(minimal_cell(**settings, n_keys=size), "leading").measures
        return bool(np.isfinite(measures.get("mean_variance", np.nan)))

    least = 1 + bisect_left(range(1, MOST + 1), True, key=holds)
    return minimal_cell(**settings, n_keys=least) if least <= MOST else None


@pytest.mark.rare
@pytest.mark.parametrize("draw, count, source, measures, allowed", [
    (near_leading, 40, "leading", ("mean_variance", "ensemble_variance", "mse"), NEXT_TERM_LIMIT),
    (near_compact, 24, "leading", ("mean_variance", "ensemble_variance"), NEXT_TERM_LIMIT),
    (near_exact, 16, "exact", ("mean_variance", "mse"), 0.0),
])  # fmt: skip
def test_theory_holds_up_to_its_edge(draw, count, source, measures, allowed):
    """Simulation over theory, minus 1, is within what the theory allows, up to what simulation can tell."""
    n_edges, found = 0, []
    for number in range(count):
        settings = {"batch_size": 512, "seed": number} | draw(random.Random(number))
        cell = minimal_cell(**settings) if source == "exact" else at_edge(settings)
        if cell is None or (told := theory_of(cell, source)).reason:
            continue
        n_edges += 1
        measured = performance(stack(batches_of(cell, 8)), np.array(cell.weights), cell.statistics)
        for name in (name for name in measures if np.isfinite(told.measures[name]) and told.measures[name] != 0.0):
            value, error = told.measures[name], told.errors.get(name, 0.0)
            off, mcse = measured.estimate[name] / value - 1.0, np.hypot(measured.mcse[name], error) / abs(value)
            found.append((float(abs(off) - allowed - 4 * mcse), f"{name} {off:+.4f} ± {mcse:.4f} of {settings}"))
    print(f"\n{draw.__name__}: {n_edges} of {count} cells have an edge; the worst of {len(found)} comparisons:")
    print(*(text for _, text in sorted(found)[:-5:-1]), sep="\n")
    assert n_edges >= count // 3
    assert not [text for beyond, text in found if beyond > 0.0]
