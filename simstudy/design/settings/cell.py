"""A cell: its tables of settings, in which no name occurs twice, quantities computed from them, and its identity."""

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, InstanceOf, PlainSerializer, model_validator
from threadpoolctl import threadpool_limits

from simstudy.design.settings import choices
from simstudy.design.settings.functions import Array, Functions, OwnCode, OwnHeads
from simstudy.design.settings.records import Count, Degrees, Line, NonNegative, Positive, Record, Seed
from simstudy.errors import UserError, require_extra

N_BLOCKS = 16
"""Blocks of consecutive replicates in one batch: the observations from which Monte Carlo errors are computed."""
MIN_BLOCKS = 64
"""Least number of blocks for a verdict, or of draws of a population (one per batch): with fewer, the correction for
skewness is poor, and a single block often dominates."""
WAVES = {"zero", "linear", "quadratic", "ridge", "additive", "interaction"}
"""Regression functions whose known means have closed forms, with Gaussian keys."""
ATTENDED = "attended"
"""Statistic of a replicate from which a diversity index is computed: mean over pairs of Σ_i w_hi w_gi."""
Visible = NDArray[np.bool_]  # (query, key): true where a query may attend to a key
MAX_NUMBERS = 1 << 23
"""Largest data set, in numbers (64 MiB): a copy is sent to a worker with every task."""
FOLDS = 5  # parts of the rows, each predicted by a fit to the others
Matrices = tuple[tuple[tuple[float, ...], ...], ...]
"""Projections (head, feature, dimension) that travel with a cell."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of data that keys are drawn from, and held-out rows, which are queries.

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
        return _digest_of_rows(np.column_stack(columns), len(self.points))

    @cached_property
    def keys_digest(self) -> str:
        """Digest of the keys alone: cells that draw from the same keys are paired."""
        return _digest_of_rows(self.keys, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _digest_of_rows(table: Array, n_held_out: int) -> str:
    heading = f"{table.shape} {n_held_out} ".encode()
    return hashlib.blake2b(heading + np.ascontiguousarray(table, "<f8").tobytes(), digest_size=16).hexdigest()


class Table(Record):
    """A table of settings, shared by cells that differ in other tables only."""

    @cached_property
    def labels(self) -> dict[str, Any]:
        """All settings and their parameters, as they label cells in results."""
        labels: dict[str, Any] = {}
        for name, value in self:
            inside = value if isinstance(value, Record) else ()
            labels |= {name: label(value)} | {f"{name}.{k}": label(v) for k, v in inside if k not in ("kind", "label")}
        return labels


class Data(Table):
    """Data-generating process: n_keys pairs (X_i, Y_i), Y = m(X) + ε, of n_features features.

    ``noise_sd`` is the standard deviation σ of the noise, or the factor on residuals.
    """

    n_keys: Count = Field(title="training pairs | n")
    n_features: int = Field(ge=1, le=2**20, title="features | d")
    key_distribution: choices.Keys = Field(choices.GaussianKeys(), title="distribution of keys")
    regression: choices.Regression = Field(choices.Zero(kind="zero"), title="regression function")
    noise: choices.Noise = choices.GaussianNoise(kind="gaussian")
    noise_sd: NonNegative = Field(1.0, title="noise standard deviation | σ | Y")

    @property
    def terms(self) -> tuple[choices.Regression, ...]:
        """Regression functions whose sum is m."""
        return self.regression.terms if isinstance(self.regression, choices.Sum) else (self.regression,)


class Heads(Table):
    """n_heads projections W_h of shape (n_features, head_dim), and their position relative to one another.

    ``total_dim`` = n_heads·head_dim may replace one of the two.  ``angle``, in degrees, is that between any two
    "rotated" heads; ``principal_angles`` are head_dim angles.  ``spread`` is the size of the random part of a
    "scattered" head relative to the part that all share.  ``head_seed`` numbers the draw of random heads.  ``file`` is
    a .npy array (head, feature, dimension), relative to the design.  "haar_redrawn" heads are drawn in each replicate;
    "opposite" query projections change their sign in every second head.
    """

    n_heads: Count = Field(title="heads | H")
    head_dim: Count = Field(title="head dimension | p")
    total_dim: Count | None = Field(None, exclude=True, title="dimension budget | D")
    arrangement: Literal[
        "aligned", "orthogonal", "rotated", "principal_angles", "scattered", "haar", "haar_redrawn", "file", "own"
    ] = Field(title="arrangement of heads")
    angle: Degrees | None = Field(None, title="angle | | degrees")
    principal_angles: tuple[Degrees, ...] | None = Field(None, strict=False, title="principal angles | | degrees")
    spread: NonNegative | None = None
    head_seed: Seed = 0
    file: Line | None = Field(None, exclude=True)
    heads_function: OwnHeads | None = None
    query_projections: Literal["same", "opposite", "haar"] = "same"
    value_projections: choices.ValueProjections = choices.PlainValueProjections(kind="none")

    @model_validator(mode="before")
    def _spend_budget(cls, values: Any) -> Any:
        """Return settings with the number of heads, or the dimension of each, computed from ``total_dim``."""
        match values:
            case {"total_dim": int(total), "head_dim": int(share)} if share > 0 and "n_heads" not in values:
                return values | {"n_heads": max(1, total // share)}
            case {"total_dim": int(total), "n_heads": int(share)} if share > 0 and "head_dim" not in values:
                return values | {"head_dim": max(1, total // share)}
        return values

    @property
    def features_needed(self) -> int:
        """Smallest d: p directions for the first head, and for each other one more for each nonzero angle."""
        turned = {
            "orthogonal": self.head_dim,
            "rotated": self.head_dim if self.angle else 0,
            "principal_angles": sum(angle > 0 for angle in self.principal_angles or ()),
        }
        return self.head_dim + (self.n_heads - 1) * turned.get(self.arrangement, 0)

    @property
    def redrawn(self) -> bool:
        """True if every replicate has heads of its own."""
        return self.arrangement == "haar_redrawn"


class Estimator(Table):
    """The Nadaraya–Watson ensemble: logits, bandwidth b (temperature τ = b²) and combination of heads.

    ``head_bandwidths`` are factors on the bandwidth, one for each head.  Keys are "raw" or "normalised" to length
    √head_dim.  ``reference`` is an independent computation that the measure ``discrepancy`` compares with.
    """

    learner: choices.LearnerChoice = choices.NadarayaWatsonLearner(kind="nadaraya_watson")
    logits: Literal["distance", "dot_product"] = "distance"
    bandwidth: choices.Bandwidth = Field(title="bandwidth | b")
    head_bandwidths: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1)] | None = None
    key_scale: Literal["raw", "normalised"] = Field("raw", title="scale of keys")
    transformation: choices.Transformation = choices.NoTransformation(kind="none")
    normaliser: choices.Normaliser = choices.SoftmaxNormaliser(kind="softmax")
    mask: choices.Mask = choices.WholeMask(kind="none")
    combination: choices.Combination = Field(choices.KnownCombination(kind="uniform"), title="combination of heads")
    reference: Literal["none", "attention", "multi_head_attention", "torch_multi_head_attention"] = "none"

    @model_validator(mode="before")
    def _without_bandwidth(cls, values: Any) -> Any:
        stated = values.get("learner") if isinstance(values, dict) else None
        kind = stated.get("kind") if isinstance(stated, dict) else getattr(stated, "kind", stated)
        return {"bandwidth": 1.0} | values if isinstance(kind, str) and kind in choices.WITHOUT_BANDWIDTH else values

    @property
    def plain(self) -> bool:
        """True for softmax attention on the keys themselves."""
        return (self.transformation.kind, self.normaliser.kind) == ("none", "softmax")


class Queries(Table):
    """Points at which estimators are evaluated; they are the same in all replicates of a batch."""

    queries: choices.QueryChoice = Field(choices.OriginQuery(kind="origin"), title="query points")


def split(raw: Rows, data: Data, seed: int, batch: int = 0) -> Rows:
    """Return rows, some of them held out at random by seed and batch; UserError if too few are left for the fit."""
    keys, crossed = data.key_distribution, isinstance(data.noise, choices.ResidualNoise)
    assert isinstance(keys, choices.FileKeys)  # only these have rows
    return _split(raw, keys.held_out, keys.standardise, getattr(data.regression, "learner", ""), crossed, seed, batch)


@lru_cache(maxsize=32)
def _split(raw: Rows, held_out: int, standardise: bool, learner: str, crossed: bool, seed: int, batch: int) -> Rows:
    # Raw words of the generator are the same in all versions of NumPy.
    order = np.argsort(np.random.Philox(key=seed + (batch << 64)).random_raw(len(raw.keys)), kind="stable")
    out, kept = order[:held_out], np.sort(order[held_out:])
    if len(kept) < 2:
        raise UserError(f"{len(raw.keys)} rows are too few for held_out = {held_out} and 2 more; add some or lower it")
    features, values, residuals = raw.keys, raw.values, raw.residuals
    if standardise:
        # A column that is constant without the held-out rows keeps its scale.
        scale = np.where(np.ptp(features[kept], axis=0) > 0.0, features[kept].std(axis=0), 1.0)
        features = (features - features[kept].mean(axis=0)) / scale
    if not learner:
        return Rows(features[kept], values[kept], residuals[kept], features[out], values[out])
    require_extra("regression", "sklearn", "learners")
    from sklearn import ensemble, linear_model, model_selection, neighbors

    # Folds and learners have a fixed seed, as they define the regression function.
    model: Any = {
        "linear": linear_model.LinearRegression(),
        "nearest_neighbours": neighbors.KNeighborsRegressor(n_neighbors=5),
        "random_forest": ensemble.RandomForestRegressor(max_features=1 / 3, min_samples_leaf=5, random_state=0),
        "gradient_boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
    }[learner]
    if len(kept) < 2 * FOLDS:
        raise UserError(f"{len(kept)} rows are too few to be fitted; {2 * FOLDS} are needed")
    x, y = features[kept], values[kept]
    with threadpool_limits(1):  # the number of threads may change last bits, and few rows take longer with more
        values, left = model.fit(x, y).predict(features), np.full(len(kept), np.nan)
        if crossed:
            folds = model_selection.KFold(FOLDS, shuffle=True, random_state=0)
            left = y - model_selection.cross_val_predict(model, x, y, cv=folds)
            if not np.ptp(left) > 0.0:
                raise UserError(f"{learner} leaves no residuals; use another noise")
            left = left - left.mean()
    return Rows(x, values[kept], left, features[out], values[out])


class Simulation(Table):
    """Computation of replicates; these entries are part of the identity of stored batches.

    "integrated" noise enters by its variance.  With ``control`` an expansion of known mean is subtracted where such
    means are known.  By default it is not used in grids with a cell that has no closed forms, or a population and
    claims; without claims a pilot decides.  ``population`` names the parts that each batch draws anew, as a sample of a
    population.  The default batch size is 256; with a population it is the size that reaches the target errors first.
    """

    seed: Seed = 0
    noise_treatment: Literal["integrated", "drawn"] = "integrated"
    control: Literal["none", "expansion"] = "expansion"
    dtype: Literal["float64", "float32"] = "float64"
    population: Annotated[
        tuple[Literal["queries", "heads", "held_out", "rows"], ...],
        Field(strict=False, exclude=True),
        AfterValidator(lambda names: tuple(sorted({*names}))),
    ] = ()
    batch_size: Annotated[int, Field(ge=4, le=2**20)] = 256


TABLES: dict[str, type[Table]] = {each.__name__.lower(): each for each in (Data, Heads, Estimator, Queries, Simulation)}
TABLE_OF: dict[str, str] = {field: table for table, model in TABLES.items() for field in model.model_fields}
OF_ALL = ("seed", "batch_size")
"""Settings of heads that also apply to cells of functions."""
OF_FUNCTIONS = tuple(name for name in Functions.model_fields if name not in ("kind", "label", "code", "parameters"))
"""Settings of functions; any other name in a grid of functions is one of their parameters."""


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
    # Contents of files: heads (head, feature, dimension), rows of data, and a mask as 0 and 1.  They identify the cell,
    # as paths do not, and travel with it to workers, which may not see the files.
    file_projections: Matrices | None = None
    file_rows: Annotated[InstanceOf[Rows], PlainSerializer(lambda rows: rows.digest)] | None = None
    file_mask: tuple[str, ...] = Field((), exclude_if=lambda rows: not rows)
    # First draw of the population (query points, heads, rows) and number of draws; several draws have an axis.
    geometry: tuple[int, int] = Field((0, 1), exclude=True)

    @property
    def rows(self) -> Rows:
        """Rows of data from which keys are drawn; with a population of held-out rows, the rows of the batch."""
        assert self.file_rows is not None  # read with the design
        if "held_out" in self.population:
            return split(self.file_rows, self.data, self.simulation.seed, self.geometry[0])
        return self.file_rows

    @cached_property
    def files(self) -> dict[str, tuple[str, str]]:
        """Setting and path of each file, by the field that holds its contents."""
        named = {
            "file_projections": ("file", self.heads.file if self.heads.arrangement == "file" else None),
            "file_mask": ("mask", getattr(self.estimator.mask, "path", None)),
            "file_rows": ("key_distribution", getattr(self.data.key_distribution, "path", None)),
        }
        return {field: (setting, path) for field, (setting, path) in named.items() if path is not None}

    @property
    @lru_cache(maxsize=4)  # noqa: B019 - large, and needed in every batch
    def visible(self) -> Visible | None:
        """True where a query may attend to a key, (query, key); None without a mask."""
        mask, n = self.estimator.mask, self.data.n_keys
        if mask.kind == "none":
            return None
        if isinstance(mask, choices.FileMask):
            return np.array([[letter == "1" for letter in row] for row in self.file_mask], order="F")
        # Integers: a rounded quotient could show one key too many.
        gaps = np.arange(n)[:, None] + -np.arange(1, self.n_queries + 1) * n // self.n_queries
        return ((gaps < 0) & (gaps >= -getattr(mask, "width", n))).T

    @cached_property
    def own(self) -> list[tuple[str, OwnCode]]:
        """User-defined functions, each with the setting that names it."""
        found: list[tuple[str, Any]] = [("method", self.functions), ("heads_function", self.heads.heads_function)]
        found += [("regression", term) for term in self.data.terms]
        return [(name, each) for name, each in found if isinstance(each, OwnCode)]

    @property
    def statistics(self) -> tuple[str, ...]:
        """Statistics that are computed from single replicates and averaged, in their order in a batch."""
        if self.functions is not None:
            return self.functions.measured
        compared = ("discrepancy",) if self.estimator.reference != "none" else ()
        # With even, integrated noise the covariance of heads given the keys is the overlap of their attention times σ².
        attends = self.estimator.learner.kind == "nadaraya_watson" and self.n_members == self.heads.n_heads
        integrated = self.simulation.noise_treatment == "integrated" and self.data.noise_sd > 0.0
        attended = (ATTENDED,) if attends and integrated and self.even_noise else ()
        # These statistics are of scalar values: errors of vectors are averages over directions of the signal.
        scalar = ("direct_mse", "query_correlation") if self.heads.value_projections.kind == "none" else ()
        return (*scalar, *compared, *attended, *self.estimator.learner.statistics)

    @property
    def even_noise(self) -> bool:
        """True if the noise is homoscedastic: its variance is the same at all keys."""
        return not isinstance(self.data.noise, choices.HeteroscedasticNoise | choices.ResidualNoise)

    @property
    def has_closed_forms(self) -> bool:
        """True if known means have closed forms; else they are sums over the rows of data that keys are drawn from."""
        return self.data.key_distribution.kind == "gaussian" and {term.kind for term in self.data.terms} <= WAVES

    @property
    def controlled(self) -> bool:
        """True if an expansion of known mean is subtracted from each replicate."""
        return self.simulation.control != "none" and not self.without_control

    @cached_property
    def without_control(self) -> str:
        """Reason why the means that `Simulation.control` needs are unknown; empty if they are known."""
        estimator, keys, closed = self.estimator, self.data.key_distribution, self.has_closed_forms
        known = closed or isinstance(keys, choices.FileKeys)
        transformed = not estimator.plain or estimator.key_scale != "raw"
        without = isinstance(keys, choices.FileKeys) and keys.sampling == "without"
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
            "the means of so many pairs and features take too long": self.control_operations > 4e9,  # about a second
        }
        return ["", *(why for why, holds in reasons.items() if holds)][-1]

    @property
    def control_operations(self) -> float:
        """Estimated number of operations for singular values and covariances of all pairs of heads, or for all rows."""
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
        """Parts of the cell that its seed draws before replicates: queries, heads (or initial heads), held-out rows."""
        heads, queries, keys = self.heads, self.queries.queries, self.data.key_distribution
        random_heads = {
            "arrangement": heads.arrangement in ("haar", "scattered", "own"),
            "query_projections": heads.query_projections == "haar" and not heads.redrawn,
            "value_projections": heads.value_projections.kind == "random",
        }
        drawn = {
            "queries": queries.kind == "gaussian",
            "heads": any(on and name not in self.estimator.learner.ignores for name, on in random_heads.items()),
            "held_out": isinstance(keys, choices.FileKeys) and keys.held_out > 0,
        }
        return frozenset(name for name, holds in drawn.items() if holds)

    @property
    def given(self) -> frozenset[str]:
        """Random parts of the cell that this study does not draw: rows of data, heads of files."""
        rows = isinstance(self.data.key_distribution, choices.FileKeys) and "rows" not in self.population
        return frozenset({"rows"} if rows else ()) | ({"head_files"} if self.heads.arrangement == "file" else set())

    @cached_property
    def population(self) -> tuple[str, ...]:
        """Parts of the cell that are drawn anew in each batch, as a sample of a population."""
        rows = {"rows"} if getattr(self.data.key_distribution, "sampling", "") == "with_replacement" else set()
        return tuple(name for name in self.simulation.population if name in self.drawn | rows)

    def with_simulation(self, **settings: Any) -> Self:
        """Return the cell with changed settings of its simulation."""
        return self.model_copy(update={"simulation": self.simulation.model_copy(update=settings)})

    def in_batch(self, batch: int, count: int = 1) -> Self:
        """Return the cell with the draws of the population that belong to a batch or to several batches."""
        return self.model_copy(update={"geometry": (batch, count)}) if self.population else self

    @property
    def bandwidth(self) -> float:
        """Bandwidth b by its rule; infinite if the rule multiplies logits by 0."""
        rule, n, p, factor = self.estimator.bandwidth, self.data.n_keys, self.heads.head_dim, math.inf
        match rule:
            case choices.FixedBandwidth():
                return rule.value
            case choices.AttentionBandwidth():
                return float(p**0.25)
            case choices.RateBandwidth():
                return float(rule.constant * n ** (-1.0 / (2.0 * rule.smoothness + p)))
            case choices.YarnBandwidth():
                factor = (rule.rate * math.log(max(n / rule.tuned_at, 1.0)) + 1.0) ** 2
            case choices.LogBandwidth():
                with contextlib.suppress(OverflowError):
                    factor = (math.log(n) / math.log(rule.tuned_at)) ** rule.power
        return rule.value / math.sqrt(factor) if factor > 0.0 else math.inf

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights a_h of the ensemble Σ_h a_h f_h; None if they follow from errors of heads."""
        combination, n_heads = self.estimator.combination, self.heads.n_heads
        match combination:
            case choices.GivenCombination():
                return combination.weights
            case choices.GeometricCombination():
                weights: list[Any] = [combination.ratio**h for h in range(n_heads)]
            case choices.KnownCombination(kind="fibonacci"):
                weights = [1, 1]
                while len(weights) < n_heads:
                    weights.append(weights[-1] + weights[-2])
                weights = weights[:n_heads][::-1]
            case choices.KnownCombination():
                return (1.0 if combination.kind == "sum" else 1.0 / n_heads,) * n_heads
            case _:
                return None
        # Integers of any size divide exactly; floats are few and positive.
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    @property
    def n_members(self) -> int:
        """Number of combined estimates: 1 if weights are fitted in each replicate or kernels are multiplied."""
        return 1 if self.estimator.combination.kind in ("fitted", "product") else self.heads.n_heads

    @cached_property
    def n_queries(self) -> int:
        """Number of query points Q; 0 for functions."""
        if self.functions is not None:
            return 0
        queries = self.queries.queries
        return len(queries.points) if isinstance(queries, choices.GivenQueries) else getattr(queries, "count", 1)

    @cached_property
    def coordinates(self) -> dict[str, Any]:
        """All settings and their parameters, as they label the cell in results; empty where they do not apply."""
        if self.functions is not None:
            shared = {name: self.simulation.labels[name] for name in OF_ALL}
            named = {name: label(getattr(self.functions, name)) for name in OF_FUNCTIONS}
            return dict.fromkeys(TABLE_OF, "") | shared | {"bandwidth_rule": ""} | named | self.functions.parameters
        labels = {name: value for table in TABLES for name, value in getattr(self, table).labels.items()}
        return labels | {"bandwidth_rule": labels["bandwidth"], "bandwidth": self.bandwidth}

    @cached_property
    def data_id(self) -> str:
        """Identity of the random numbers; paired cells may differ in sizes, noise level, m(x) and estimator."""
        keys = self.data.key_distribution
        # These names are hashed, and drawn numbers depend on them.
        hashed: dict[str, Any] = {"key_distribution": {"distribution": keys.kind} | keys.model_dump(exclude={"kind"})}
        if self.file_rows is not None:
            hashed["rows"] = self.file_rows.keys_digest
        if self.functions is not None and self.functions.independent:
            hashed["levels"] = {name: self.functions.parameters[name] for name in self.functions.independent}
        return _digest({"seed": self.simulation.seed, **hashed})

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - needed in every batch, for cells that a design holds
    def identity(self, engine: str) -> str:
        """Identity of stored batches, from settings and engine, as 20 hexadecimal digits."""
        # Batches hold moments of heads; cells that differ only in the combination of heads share them.
        combined = self.estimator.combination.kind in ("fitted", "product") or self.estimator.reference != "none"
        settings = self.model_dump(exclude={"file_rows": True, "estimator": set() if combined else {"combination"}})
        if self.functions is not None:
            settings["functions"]["parameters"] = self.functions.taken
        contents = {"rows": self.file_rows and self.rows.digest, "population": self.population}
        stated = {name: value for name, value in contents.items() if value}
        return _digest({"settings": settings, "engine": engine} | stated)[:20]


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def label(value: Any) -> Any:
    """Return a setting as text or number, for a coordinate."""
    if value is None or value == ():
        return ""
    if isinstance(value, tuple | list):
        inside = (f"{v:g}" if isinstance(v, (int, float)) else str(getattr(v, "label", v)) for v in value)
        return f"({', '.join(inside)})"
    return getattr(value, "label", value)
