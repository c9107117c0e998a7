"""User-defined functions: source text that travels with a cell and runs only if the user trusts it."""

import ast
import functools
import hashlib
import math
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, PlainSerializer, ValidationInfo, model_validator

from simstudy.design.settings.records import Choice, Identifier, Integer, Line, Path, hint, refusal
from simstudy.errors import UserError
from simstudy.formulas import FAILURE_RATE, KNOWN, OF_MEANS, OF_TABLES, Array, OfMeans, measured_with

_LOADING = threading.RLock()  # a file is executed once: threads share its caches and locks
_COMPONENTS = "; such as their mean, or measures of components by simstudy.performance(simstudy.estimates(…))"
STAND_INS = "# Functions that were given to simulate"
"""First line of a file of functions that call others by value."""
BY_VALUE: dict[str, dict[str, bytes]] = {}
"""Pickled callables of this process, by the text that calls them and the digest of their dependencies."""


@dataclass(frozen=True)
class Code:
    """Text of a Python file, and its path; files of equal text are equal, and trust is never stored."""

    text: str
    place: str = field(default="", compare=False)
    trusted: bool = field(default=False, compare=False)
    by_value: tuple[tuple[str, bytes], ...] = field(default=(), compare=False, repr=False)  # as in `BY_VALUE`

    @property
    def label(self) -> str:
        """Digest of the text, as a coordinate."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()

    def require_trust(self) -> None:
        """Raise a UserError if the user does not trust the code, or if another process gave it to `simulate`."""
        if self.text.startswith(STAND_INS) and not self.by_value:
            raise UserError(f"{self.place}: its functions were given to simulate; call it again, as you did")
        if not self.trusted:
            raise UserError(f"{self.place}: its code runs only if you trust it; read it, then add --trust {self.place}")

    @property
    @functools.lru_cache(maxsize=64)  # noqa: B019 - cells share texts
    def functions(self) -> dict[str, dict[str, bool]]:
        """Functions that the file defines, without running it: names of arguments, and whether each is required."""
        found = {node.name: node.args for node in ast.parse(self.text).body if isinstance(node, ast.FunctionDef)}
        return {
            name: {each.arg: place < len(takes.args) - len(takes.defaults) for place, each in enumerate(takes.args)}
            | {each.arg: value is None for each, value in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)}
            for name, takes in found.items()
        }

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the file."""
        self.require_trust()
        with _LOADING:
            return _namespace(self.text, self.place, self.by_value)[name]


@functools.lru_cache(maxsize=64)
def _namespace(text: str, place: str, by_value: tuple[tuple[str, bytes], ...]) -> dict[str, Any]:
    known = functools.cache(lambda digest: pickle.loads(dict(by_value)[digest]))  # pickled by `simulate`

    def call(digest: str, given: dict[str, Any], first: int) -> Any:
        stated = {name: value for name, value in given.items() if value is not ...}
        arguments = [stated.pop(name) for name in [*given][:first] if name in stated]
        return known(digest)(*arguments, **stated)

    names: dict[str, Any] = {"__name__": "simstudy_own", "__file__": place, "_call": call}
    try:
        exec(compile(text, place, "exec"), names)
    except (Exception, SystemExit) as error:
        raise UserError(f"{place}: raises {_brief(error)} when it is run") from None
    return names


class NumericalError(UserError, ArithmeticError):
    """Arithmetic error in a function of the user; in a run the replicate has failed."""


class OwnCode(Choice):
    """A setting with functions of the user's Python file at ``path``, relative to the design."""

    path: Path
    code: Annotated[InstanceOf[Code], PlainSerializer(lambda code: code.text)] = Code("")  # until the file is read

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Self:
        if info.context is not None:
            try:
                self.__dict__["code"] = info.context.code(self.path, self.uses_functions)
            except UserError as error:
                raise refusal(str(error), "unread") from None
        return self

    @property
    def uses_functions(self) -> tuple[str, ...]:
        """Functions of the file that are called: those named in entries, and measures that the file defines."""
        entries = ("name", "process", "method", "exact_theory", "leading_theory")
        named = filter(None, (getattr(self, each, None) for each in entries))
        own = (name for name in getattr(self, "measures", ()) if name in self.code.functions and name not in KNOWN)
        return tuple(dict.fromkeys((*named, *own)))

    def refuse(self, fault: str) -> NoReturn:
        """Raise a UserError with the path of the file."""
        raise UserError(f"{self.path}: {fault}")

    def real(self, source: str, values: Any, shape: tuple[int, ...] | None = None, way: str = "") -> Array:
        """Return the result of a function as real numbers (NaN for a failure); refuse others, and wrong shapes."""
        array = as_array(values)
        if array.dtype.kind not in "biuf" or shape not in (None, array.shape):
            kind = {"U": "text", "O": type(values).__name__}.get(array.dtype.kind, array.dtype.name)
            like = "" if shape is None else f" of shape {shape}"
            self.refuse(f"{source} {kind} of shape {array.shape}; give real numbers{like}, NaN where undefined{way}")
        return array.astype(float, copy=False)

    def run(self, name: str, /, *arrays: Any, **named: Any) -> Any:
        """Return the result of a function of the file on read-only arrays; UserError if it raises."""
        function = self.code.function(name)
        try:
            return function(*map(_read_only, arrays), **{k: _read_only(v) for k, v in named.items()})
        except (Exception, SystemExit) as error:
            fault = f"{self.code.place}: {name} raises {_brief(error)}"
            if "read-only" in str(error):  # a mistake, not a failed replicate
                raise UserError(f"{fault}: data are shared by all methods; copy one before you change it") from None
            numerical = isinstance(error, ArithmeticError | np.linalg.LinAlgError)
            raise (NumericalError if numerical else UserError)(fault) from error


def _read_only(array: Any) -> Any:
    return np.broadcast_to(array, array.shape, subok=True) if isinstance(array, np.ndarray) else array


def _brief(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


class OwnFunction(OwnCode, kind="own"):
    """m(x) by a function of a Python file, from an array x (feature, ...) to values of the shape of x[0].

    Each value must depend on its own point alone, as the function is called with any number of points.
    """

    name: Identifier

    def call(self, shape: tuple[int, ...], array: NDArray) -> NDArray[np.float64]:
        """Return the numbers, of this shape, that the function gives for a read-only array."""
        return self.real(f"{self.name} returns", self.run(self.name, array), shape)

    def _described(self) -> str:
        return f"{self.name} of {self.path}"


class OwnHeads(OwnFunction):
    """Key projections W_h by a function of a Python file, which returns an array (head, feature, dimension).

    Its argument is an array of independent standard normals of that shape.  They depend on head_seed, and on the batch
    if heads are a population.  Every head must have full rank; the columns need not be orthonormal.
    """

    kind: Literal["own"] = Field("own", exclude=True)


class Draw:
    """Random numbers of consecutive replicates, for trial calls of functions before a study runs.

    In a run they are those of `attention.functions`: the first n numbers of a call are the same for any larger n.
    """

    def __init__(self, replicates: range) -> None:
        self.count, self._rngs = len(replicates), [np.random.default_rng(r) for r in replicates]

    def _filled(self, normal: bool, shape: tuple[int, ...]) -> Array:
        return np.stack([rng.standard_normal(shape) if normal else rng.random(shape) for rng in self._rngs])

    def normals(self, *shape: int) -> Array:
        """Return standard normals (replicate, *shape); shape has one or two dimensions."""
        return self._filled(True, shape)

    def uniforms(self, *shape: int) -> Array:
        """Return uniforms in (0, 1), as `normals`."""
        return self._filled(False, shape)

    def correlated_normals(self, covariance: Any, *shape: int) -> Array:
        """Return normals (replicate, *shape, variable) of mean 0 and a positive definite covariance."""
        # Cholesky's root is unique; NumPy's, of eigenvalues, differs between processors if eigenvalues are equal.
        root = np.linalg.cholesky(np.asarray(covariance, float))
        z = self.normals(math.prod(shape) * len(root)).reshape(-1, *shape, len(root))
        return np.stack([sum(a * z[..., k] for k, a in enumerate(row[: j + 1])) for j, row in enumerate(root)], axis=-1)

    def generators(self) -> Sequence[np.random.Generator]:
        """Return a generator for each replicate."""
        return self._rngs


class Functions(OwnCode):
    """Functions of a Python file that give the numbers of each replicate, and the parameters that they take by name.

    The process takes ``draw`` (many replicates) or ``rng`` (one) and returns data by name.  The method takes data by
    name and returns numbers by name: measures, or estimate, se, lower, upper, reject.  Without a process it takes
    ``draw`` or ``rng`` itself.  With ``one_by_one`` method and measures take one replicate.  A measure is built in, a
    number of the method, or a function of the file, which may take ``mean_NAME``, the mean of a measure.  A theory
    takes parameters and returns expected measures, ``exact`` at any size or ``leading`` at large ones.  All may take
    parameters; levels of ``independent`` parameters have different random numbers, levels of others share them.
    """

    kind: Literal["functions"] = Field("functions", exclude=True)
    path: Path = "functions.py"
    process: Identifier | None = None
    method: Identifier
    measures: Annotated[tuple[Identifier, ...], Field(strict=False, min_length=1)]
    one_by_one: bool = False
    independent: Annotated[tuple[Identifier, ...], Field((), strict=False, exclude_if=lambda names: not names)]
    exact_theory: Identifier | None = Field(None, exclude=True)
    leading_theory: Identifier | None = Field(None, exclude=True)
    parameters: dict[Identifier, bool | Integer | float | Line] = Field(default_factory=dict)

    builtin: ClassVar[tuple[str, ...]] = (*KNOWN, FAILURE_RATE)

    def __hash__(self) -> int:
        """Include parameters, in any order, as other fields are often the same in all cells."""
        return hash((self.code, self.process, self.method, self.measures, frozenset(self.parameters.items())))

    @property
    def measured(self) -> tuple[str, ...]:
        """Measures of the design and those from which they are computed."""
        return measured_with(self.measures)

    @property
    def of_means(self) -> dict[str, OfMeans]:
        """Measures that are functions of means, in the order of computation."""

        def own_measure(name: str, means: Mapping[str, Array]) -> Array:
            columns = {f"mean_{each}": means[each] for each in self._means(name)}
            rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
            return self.real(f"{name} returns", [self._call(name, self.parameters | row) for row in rows])

        own = {name: functools.partial(own_measure, name) for name in self.measured if self._means(name)}
        return {name: function for name, function in OF_MEANS.items() if name in self.measured} | own

    def _means(self, name: str) -> list[str]:
        """Return the measures whose means are arguments of a function of the file."""
        return [each for each in self.measured if name not in KNOWN and f"mean_{each}" in self._takes(name)]

    @property
    def taken(self) -> dict[str, Any]:
        """Parameters that the process, the method or a measure takes; others have no effect in this cell."""
        names = {name for each in self.uses_functions for name in self._takes(each)} | {"truth"}
        return {name: value for name, value in self.parameters.items() if name in names}

    def impossibilities(self) -> Iterator[tuple[str, str]]:
        """Yield each setting that does not fit the functions, and a remedy."""
        if not self.measured:
            yield "measures", f"{FAILURE_RATE} is in all results; name another measure too"
        taken = {name for takes in self.code.functions.values() for name in takes}
        reserved = {*(drawn_from := {"draw", "rng"}), *self.measured}
        for name in sorted({*self.parameters} & reserved):
            yield f"parameters.{name}", "is a measure, or a source of random numbers; give the parameter another name"
        for name in sorted({*self.independent} - {*self.parameters}):
            yield "independent", f"{name} is no factor of these functions; they have {', '.join(self.parameters)}"
        for name in sorted({*self.parameters} - taken - reserved - {"truth"}):
            yield f"parameters.{name}", f"is taken by no function; they take {', '.join(sorted(taken - drawn_from))}"

    def theory(self, source: str) -> dict[str, float]:
        """Return expected measures by name, by the function of a theory (exact, leading); empty without a function."""
        if (function := getattr(self, f"{source}_theory")) is None:
            return {}
        found = self._by_name(function, {}, None)
        numbers = {name: found[name] for name in self.measured if name in found}
        return {name: float(self.real(f"{function} gives {name} as", each, ())) for name, each in numbers.items()}

    def _described(self) -> str:
        return f"{self.method} on {self.process}" if self.process else self.method

    def _takes(self, function: str) -> dict[str, bool]:
        return self.code.functions.get(function, {})

    def numbers(self, draw: Draw, once: Callable[..., Any] | None = None, note: Any = str) -> dict[str, Array]:
        """Return measures (replicate,) by name, NaN where a replicate failed; an error of a call for all is raised.

        ``once`` returns the data of an address, computed once; ``note`` is called with each reason of failure.
        """
        takes = self._takes(self.process) if self.process else {}
        # Cells with the same address have the same data.
        address = self.code, self.process, *((k, v) for k, v in sorted(self.parameters.items()) if k in takes)
        data = self._data(draw) if once is None else once(address, lambda: self._data(draw))
        if not self.one_by_one:
            return self._measure(dict(data), draw.count)
        rows = []
        for replicate in range(draw.count):
            try:
                rows.append(self._measure(_one(data, replicate), None))
            except UserError as error:
                numerical = ArithmeticError, np.linalg.LinAlgError, ValueError, RuntimeError
                if not isinstance(error.__cause__ or error, numerical):  # these are failures of the replicate
                    raise
                note(str(error))
                rows.append(dict.fromkeys(self.measured, np.nan))
        return {name: np.array([row[name] for row in rows], float) for name in self.measured}

    def results(self, draw_of: Callable[[int, int], Draw], first: int, count: int) -> list[tuple[dict[str, Any], str]]:
        """Return for each replicate its data and results by name, and the reason of a failure or an empty text."""
        data = self._data(draw_of(first, count))
        if self.one_by_one:
            return [self._result(_one(data, replicate), None) for replicate in range(count)]
        data, failure = self._result(data, count)
        if failure and count > 1:  # one of the replicates failed
            return [row for each in range(first, first + count) for row in self.results(draw_of, each, 1)]
        return [(_one(data, replicate), failure) for replicate in range(count)]

    def _result(self, data: dict[str, Any], count: int | None) -> tuple[dict[str, Any], str]:
        try:
            return data | self._by_name(self.method, data, count), ""
        except UserError as error:
            return data, str(error)

    def _data(self, draw: Draw) -> dict[str, Any]:
        """Return the data of the process by name: arrays (replicate, ...), or constants."""
        if self.process is None:
            return {"rng": [*draw.generators()]} if self.one_by_one else {"draw": draw}
        if "rng" not in self._takes(self.process):
            return self._by_name(self.process, {"draw": draw}, draw.count)
        rows = [self._by_name(self.process, {"rng": rng}, None) for rng in draw.generators()]
        found: dict[str, Any] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            if len({np.shape(row[name]) if name in row else None for row in rows}) > 1:
                fault = f"{self.process} gives {name} in different shapes in two replicates"
                self.refuse(f"{fault}; give arrays of one shape, filled up with NaN")
            found[name] = self._fixed(name, np.stack([row[name] for row in rows]))
        return found

    def _measure(self, data: dict[str, Any], count: int | None) -> dict[str, Any]:
        known = self.parameters | data | self._by_name(self.method, data, count)
        numbers, shape = dict[str, Any](), () if count is None else (count,)
        for name in self.measured:
            function = name if name in self.uses_functions else self.method
            needs, measure = KNOWN.get(name, ((name,), lambda number: number))
            if function == name:
                numbers[name] = np.zeros(count or ()) if self._means(name) else self._call(function, known)
            elif missing := [each for each in needs if each not in known]:
                given = sorted(known.keys() - self.parameters.keys() - {"draw", "rng"})
                needed = f"{name} needs it; known are {', '.join(given)}"
                needed = needed if name in KNOWN else hint(name, [*given, *self.builtin])
                needed = "simstudy.performance(simstudy.estimates(…)) has it" if name in OF_TABLES else needed
                self.refuse(f"{function} returns no {missing[0]!r}; {needed}")
            else:
                given = [self.real(f"{function} gives {each} as", known[each]) for each in needs]
                if needs == ("reject",) and (np.abs(given[0] - 0.5) > 0.5).any():
                    self.refuse(f"{function} gives reject beyond 0 and 1; give truth values or probabilities")
                if needs == ("se",) and (given[0] < 0.0).any():
                    self.refuse(f"{function} gives se below 0; give standard errors, NaN where there is none")
                if needs[:1] == ("lower",) and ((given[1] < given[0]) & (given[0] < np.inf)).any():
                    self.refuse(f"{function} gives lower above upper; give the lower end first")
                numbers[name] = measure(*given)
            numbers[name] = self.real(f"{function} gives {name} as", numbers[name], shape, _COMPONENTS)
        return numbers

    def _by_name(self, function: str, known: Mapping[str, Any], count: int | None) -> dict[str, Any]:
        found = self._call(function, self.parameters | dict(known))
        if not isinstance(found, Mapping):
            self.refuse(f"{function} returns {type(found).__name__}; return a dict of arrays by name")
        if function == self.process:
            found = {name: self._fixed(name, values) for name, values in found.items()}
        for name, values in found.items():
            if count is not None and (isinstance(values, list | tuple) or np.ndim(values)) and len(values) != count:
                fault = f"{function} gives {name} of length {len(values)}"
                self.refuse(f"{fault}; the first axis must be that of {count} replicates")
        return {str(name): values for name, values in found.items()}

    def _fixed(self, name: str, values: Any) -> Any:
        """Return data of the process that no method can change: a scalar, or a read-only copy of an array."""
        if isinstance(values, bool | int | float | complex | str):
            return values
        known = isinstance(values, list | tuple | np.generic) or type(values) is np.ndarray
        array = as_array(values).copy() if known else np.empty(0, object)
        if array.dtype.kind not in "biufcU":
            fault = f"{self.process} gives {name} as {type(values).__name__}"
            self.refuse(f"{fault}; give an array of numbers, truth values or texts, or one of them")
        array.flags.writeable = False
        return array if array.ndim else array[()]

    def _call(self, function: str, known: Mapping[str, Any]) -> Any:
        takes = self._takes(function)
        if missing := [name for name, needed in takes.items() if needed and name not in known]:
            self.refuse(f"{function} takes {missing[0]!r}; known are {', '.join(known)}")
        return self.run(function, **{name: known[name] for name in takes if name in known})


def as_array(values: Any) -> NDArray[Any]:
    """Return values as an array, NaN where masked; an empty array of objects if lists have different lengths."""
    try:
        masked = isinstance(values, np.ma.MaskedArray)
        return np.ma.filled(values.astype(float), np.nan) if masked else np.asarray(values)
    except ValueError:
        return np.empty(0, object)


def _one(many: Mapping[str, Any], replicate: int) -> dict[str, Any]:
    return {k: v[replicate] if isinstance(v, list | tuple) or np.ndim(v) else v for k, v in many.items()}
