"""A cell: one combination of factor values, what it implies, and its identity."""

import hashlib
import json
import math
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, InstanceOf, PlainSerializer, model_validator

from simstudy.design.settings import ensembles
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.levels import label
from simstudy.design.settings.mechanisms import Visible, visible_keys
from simstudy.design.settings.processes import FileKeys, HeteroscedasticNoise, ResidualNoise
from simstudy.design.settings.records import Record
from simstudy.design.settings.rows import Rows, split
from simstudy.design.settings.tables import Data, Estimator, Heads, Queries, Simulation, Table

N_BLOCKS = 16
"""Blocks of consecutive replicates in one batch: the observations from which Monte Carlo errors are computed."""
MIN_BLOCKS = 64
"""Blocks, or draws of a population (one to a batch), below which there is no verdict: with fewer, skewness is not
corrected well, and one of them is often large."""

WAVES = {"zero", "linear", "quadratic", "ridge", "additive", "interaction"}
"""Regression functions whose known means have closed forms, with Gaussian keys."""
_MOST_OPERATIONS = 4e9
"""Most operations that the known means of a cell may take: about a second."""

ATTENDED = "attended"
"""Statistic of a replicate of which a diversity index is made: overlap Σ_i w_hi w_gi of attention, mean over pairs."""

Matrices = tuple[tuple[tuple[float, ...], ...], ...]
"""Projections (head, feature, dimension) that travel with a cell."""
_OF_ALL = ("seed", "batch_size")
"""Settings of tables that cells of functions have."""
OF_FUNCTIONS = tuple(name for name in Functions.model_fields if name not in ("kind", "label", "code", "parameters"))
"""Settings of functions; every other name in a grid of functions is a parameter that they take."""
_ONE_HEAD: dict[str, dict[str, Any]] = {
    "data": {"n_keys": 1, "n_features": 1},
    "heads": {"n_heads": 1, "head_dim": 1, "arrangement": "aligned"},
    "estimator": {"bandwidth": 1.0},
}


class Cell(Record):
    """One combination of factor values: everything that decides its numbers, and nothing else.

    Either an ensemble that is estimated at query points, or functions that give numbers.
    """

    data: Data
    heads: Heads
    estimator: Estimator
    functions: Functions | None = Field(None, exclude_if=lambda functions: functions is None)
    queries: Queries = Queries()
    simulation: Simulation = Simulation()
    # Contents of files, which travel with the cell to workers that may not see them and identify it, as paths do not:
    # heads (head, feature, dimension), rows of data, and a mask as 0 and 1.
    file_projections: Matrices | None = None
    file_rows: Annotated[InstanceOf[Rows], PlainSerializer(lambda rows: rows.digest)] | None = None
    file_mask: tuple[str, ...] = Field((), exclude_if=lambda rows: not rows)
    # Number of the draw of query points, heads and rows that are looked at, where these are a population.
    geometry: int = Field(0, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _fill_tables_of_functions(cls, tables: Any) -> Any:
        """Give cells of functions, which draw no heads, the tables of one head that sees one key."""
        if not isinstance(tables, dict) or tables.get("functions") is None:
            return tables
        shared = {name: value for name, value in tables.get("simulation", {}).items() if name in _OF_ALL}
        return _ONE_HEAD | {"functions": tables["functions"], "simulation": {"control": "none"} | shared}

    @property
    def rows(self) -> Rows:
        """The user's data that keys are drawn from: of the batch, where rows held out are a population."""
        if self.file_rows is None:
            raise ValueError("the rows of the data have not been read; load the design they belong to")
        if "held_out" in self.population:
            return split(self.file_rows, self.data, self.simulation.seed, self.geometry)
        return self.file_rows

    @property
    def visible(self) -> Visible | None:
        """Visible keys of each query, (query, key); None without a mask."""
        return visible_keys(self.estimator.mask, self.n_queries, self.data.n_keys, self.file_mask)

    @property
    def named_settings(self) -> tuple[str, ...]:
        """Names of the settings of tables that the cell has: those of functions draw no heads."""
        return tuple(TABLE_OF) if self.functions is None else _OF_ALL

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of what is computed of each replicate by itself and averaged, in the order of a batch."""
        if self.functions is not None:
            return self.functions.measured
        compared = ("discrepancy",) if self.estimator.reference != "none" else ()
        # There the covariance of heads given the keys is the overlap of their attention, times σ².
        attends = self.estimator.learner.kind == "nadaraya_watson" and self.n_members == self.heads.n_heads
        integrated = self.simulation.noise_treatment == "integrated" and self.data.noise_sd > 0.0
        attended = (ATTENDED,) if attends and integrated and self.even_noise else ()
        # Of a single replicate estimates are numbers: errors of vectors are averages over directions of the signal.
        of_numbers = ("direct_mse", "query_correlation") if self.heads.value_projections.kind == "none" else ()
        return (*of_numbers, *compared, *attended, *self.estimator.learner.statistics)

    @property
    def even_noise(self) -> bool:
        """True if the variance of the noise is the same at all keys."""
        return not isinstance(self.data.noise, HeteroscedasticNoise | ResidualNoise)

    @property
    def has_closed_forms(self) -> bool:
        """True if known means are closed forms; others are sums over the rows of data that keys are drawn from."""
        return self.data.key_distribution.kind == "gaussian" and {term.kind for term in self.data.terms} <= WAVES

    @property
    def controlled(self) -> bool:
        """True if an expansion of known mean is taken off the moments of replicates."""
        return self.simulation.control != "none" and not self.without_control

    @property
    def without_control(self) -> str:
        """Reason for which the known means that `Simulation.control` needs are lacking; empty if they are not."""
        estimator, keys, closed = self.estimator, self.data.key_distribution, self.has_closed_forms
        known = closed or isinstance(keys, FileKeys)
        transformed = not estimator.plain or estimator.key_scale != "raw"
        without = isinstance(keys, FileKeys) and keys.sampling == "without"
        reasons = {
            "means are known of Gaussian keys and of sums of polynomials and waves, or of rows of data": not known,
            "noise is drawn": self.simulation.noise_treatment != "integrated",
            "members are not given heads": estimator.learner.kind != "nadaraya_watson",
            "heads are not softmax attention on the keys themselves": transformed,
            "heads are merged into one estimate": estimator.combination.kind in ("product", "fitted"),
            "queries see different keys": estimator.mask.kind != "none",
            "heads are redrawn": self.heads.redrawn,
            "keys of a replicate depend on one another": keys.kind == "autoregressive" or without,
            "draws of a population have means of their own": not closed and self.population != (),
            "the means of so many pairs and features take too long": self.control_operations > _MOST_OPERATIONS,
        }
        return ["", *(why for why, holds in reasons.items() if holds)][-1]

    @property
    def control_operations(self) -> float:
        """Estimated operations of singular values and covariances of all pairs of heads, or of all rows."""
        d, n_heads, p = self.data.n_features, self.heads.n_heads, self.heads.head_dim
        if self.has_closed_forms and self.estimator.logits == "dot_product":
            n_waves = sum(d if term.kind == "additive" else 1 for term in self.data.terms)
            return self.n_queries * n_heads * (n_heads + 1) * (d**2 + 1e3 * (20.0 + 10.0 * n_waves + n_waves**2))
        if self.has_closed_forms:
            return d * n_heads * (n_heads + 1) * (2.0 * d**2 + 40.0 * p**2)
        n_rows = len(self.rows.keys) if self.file_rows else 0
        return n_rows * (20.0 * d + n_heads * self.n_queries * (20.0 + 5.0 * n_heads))

    @property
    def drawn(self) -> frozenset[str]:
        """Names of what the seed draws once, before replicates: queries, heads or where these start, rows held out."""
        if self.functions is not None:
            return frozenset()
        heads, queries, keys = self.heads, self.queries.queries, self.data.key_distribution
        random_heads = {
            "arrangement": heads.arrangement in ("haar", "scattered", "own"),
            "query_projections": heads.query_projections == "haar" and not heads.redrawn,
            "value_projections": heads.value_projections.kind == "random",
        }
        drawn = {
            "queries": queries.kind == "gaussian",
            "heads": any(on and name not in self.estimator.learner.ignores for name, on in random_heads.items()),
            "held_out": isinstance(keys, FileKeys) and keys.held_out > 0,
        }
        return frozenset(name for name, holds in drawn.items() if holds)

    @property
    def given(self) -> frozenset[str]:
        """Names of what somebody drew before any seed of this study: rows of data, heads of files, a trained model."""
        rows = isinstance(self.data.key_distribution, FileKeys) and "rows" not in self.population
        return frozenset({"rows"} if rows else ()) | ({"head_files"} if self.heads.arrangement == "file" else set())

    @property
    def population(self) -> tuple[str, ...]:
        """Names of what is that of a population, new in each batch; empty where all is fixed."""
        keys = self.data.key_distribution
        rows = {"rows"} if isinstance(keys, FileKeys) and keys.sampling == "with_replacement" else set()
        return tuple(name for name in self.simulation.population if name in self.drawn | rows)

    def in_batch(self, batch: int) -> Self:
        """Return the cell with the query points, heads and rows of a batch, where these are a population."""
        return self.model_copy(update={"geometry": batch}) if self.population else self

    @property
    def bandwidth(self) -> float:
        """Bandwidth b after its rule is applied, infinite where logits grow by no positive factor.

        The softmax temperature is b².
        """
        rule, n, p = self.estimator.bandwidth, self.data.n_keys, self.heads.head_dim
        match rule:
            case ensembles.FixedBandwidth():
                return rule.value
            case ensembles.AttentionBandwidth():
                return float(p**0.25)
            case ensembles.RateBandwidth():
                return float(rule.constant * n ** (-1.0 / (2.0 * rule.smoothness + p)))
            case ensembles.YarnBandwidth():
                factor = (rule.rate * math.log(max(n / rule.tuned_at, 1.0)) + 1.0) ** 2
            case ensembles.LogBandwidth():
                factor = (math.log(n) / math.log(rule.tuned_at)) ** rule.power
        return rule.value / math.sqrt(factor) if factor > 0.0 else math.inf

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Combination weights a_h, the ensemble being Σ_h a_h f_h; None where they follow from the errors of heads."""
        combination, n_heads = self.estimator.combination, self.heads.n_heads
        weights: list[Any] = [1, 1]
        match combination:
            case ensembles.GivenCombination():
                return combination.weights
            case ensembles.GeometricCombination():
                weights = [combination.ratio**h for h in range(n_heads)]
            case ensembles.KnownCombination(kind="fibonacci"):
                while len(weights) < n_heads:
                    weights.append(weights[-1] + weights[-2])
                weights = weights[:n_heads][::-1]
            case ensembles.KnownCombination():
                return (1.0 if combination.kind == "sum" else 1.0 / n_heads,) * n_heads
            case _:
                return None
        # Whole numbers of any size divide exactly; floats here are few and of one sign.
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    @property
    def n_members(self) -> int:
        """Number of estimates that an ensemble combines: one if each replicate fits weights or multiplies kernels."""
        return 1 if self.estimator.combination.kind in ("fitted", "product") else self.heads.n_heads

    @property
    def n_queries(self) -> int:
        """Number of query points Q, of which functions have none."""
        if self.functions is not None:
            return 0
        queries = self.queries.queries
        return getattr(queries, "count", len(getattr(queries, "points", (None,))))

    @cached_property
    def coordinates(self) -> dict[str, Any]:
        """Every setting and parameter of a choice, as it labels the cell in results; empty if it means nothing."""
        if self.functions is not None:
            shared = {name: self.simulation.labels[name] for name in _OF_ALL}
            named = {name: label(getattr(self.functions, name)) for name in OF_FUNCTIONS}
            return dict.fromkeys(TABLE_OF, "") | shared | {"bandwidth_rule": ""} | named | self.functions.parameters
        labels = {name: value for table in TABLES for name, value in getattr(self, table).labels.items()}
        return labels | {"bandwidth_rule": labels["bandwidth"], "bandwidth": self.bandwidth}

    @cached_property
    def data_id(self) -> str:
        """Identity of the random numbers: sizes, noise level, targets and estimators of paired cells may differ."""
        keys = self.data.key_distribution
        # By this name, whatever designs call it: drawn bits rest on it.
        parameters = {"distribution": keys.kind} | keys.model_dump(exclude={"kind"})
        law: dict[str, Any] = {"key_distribution": parameters}
        if self.file_rows is not None:
            law["rows"] = self.file_rows.keys_digest
        if self.functions is not None and self.functions.independent:
            law["levels"] = {name: self.functions.parameters[name] for name in self.functions.independent}
        return _digest({"seed": self.simulation.seed, **law})

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - asked for with every batch, of cells that a design holds
    def identity(self, engine: str) -> str:
        """Identity of the stored batches: settings and engine, as 20 hexadecimal digits."""
        # Moments are those of the heads, whatever combines them; so cells that differ in this alone share batches.
        combined = self.estimator.combination.kind in ("fitted", "product") or self.estimator.reference != "none"
        settings = self.model_dump(exclude={"file_rows": True, "estimator": set() if combined else {"combination"}})
        if self.functions is not None:
            settings["functions"]["parameters"] = self.functions.taken
        apart = {"rows": self.file_rows and self.rows.digest, "population": self.population}
        stated = {name: value for name, value in apart.items() if value}
        return _digest({"settings": settings, "engine": engine} | stated)[:20]


TABLES: dict[str, type[Table]] = {
    "data": Data,
    "heads": Heads,
    "estimator": Estimator,
    "queries": Queries,
    "simulation": Simulation,
}
TABLE_OF: dict[str, str] = {field: table for table, model in TABLES.items() for field in model.model_fields}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
