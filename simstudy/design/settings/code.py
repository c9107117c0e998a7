"""The user's own functions: source text that travels with a cell, and runs only where the user said so."""

import ast
import functools
import hashlib
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, InstanceOf, PlainSerializer, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from simstudy.design.settings.records import Choice, Path
from simstudy.errors import UserError

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_LOADING = threading.RLock()  # threads that ran a file twice would share neither its caches nor its locks
STAND_INS = "# Functions that were given to simulate"
"""How a text of functions begins that call others by value."""
BY_VALUE: dict[str, dict[str, bytes]] = {}
"""Callables of this process, pickled, by the digest of what they rest on, for the text that calls them."""


@dataclass(frozen=True)
class Code:
    """The text of a Python file, by which two are equal, and where it was found; that it is trusted is never stored."""

    text: str
    place: str = field(default="", compare=False)
    trusted: bool = field(default=False, compare=False)
    by_value: tuple[tuple[str, bytes], ...] = field(default=(), compare=False, repr=False)  # what `BY_VALUE` has

    @property
    def label(self) -> str:
        """Digest of the text: the code as a coordinate."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()

    def require_trust(self) -> None:
        """Refuse code that the user did not say may run, or that was given to simulate in another process."""
        if self.text.startswith(STAND_INS) and not self.by_value:
            raise UserError(f"{self.place}: its functions were given to simulate; call it again, as you did")
        if not self.trusted:
            raise UserError(f"{self.place}: its code runs only if you trust it; read it, then add --trust {self.place}")

    @property
    def functions(self) -> dict[str, dict[str, bool]]:
        """Functions that the file defines, told without running it: what they take, and whether they must get it."""
        return _functions(self.text)

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that the file defines."""
        self.require_trust()
        with _LOADING:
            return _namespace(self.text, self.place, self.by_value)[name]


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> dict[str, dict[str, bool]]:
    found = {node.name: node.args for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    return {
        name: {each.arg: place < len(takes.args) - len(takes.defaults) for place, each in enumerate(takes.args)}
        | {each.arg: value is None for each, value in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)}
        for name, takes in found.items()
    }


@functools.lru_cache(maxsize=64)
def _namespace(text: str, place: str, by_value: tuple[tuple[str, bytes], ...]) -> dict[str, Any]:
    pickled = dict(by_value)

    @functools.cache
    def known(digest: str) -> Callable[..., Any]:
        return pickle.loads(pickled[digest])  # made in the process that called simulate

    def call(digest: str, given: dict[str, Any], first: int) -> Any:
        stated = {name: value for name, value in given.items() if value is not ...}
        arguments = [stated.pop(name) for name in [*given][:first] if name in stated]
        return known(digest)(*arguments, **stated)

    names: dict[str, Any] = {"__name__": "simstudy_own", "__file__": place, "_call": call}
    try:
        exec(compile(text, place, "exec"), names)
    except Exception as error:
        raise UserError(f"{place}: raises {_brief(error)} when it is run") from None
    return names


class OwnCode(Choice):
    """A setting that rests on functions of the user's own Python file at ``path``, relative to the design."""

    builtin: ClassVar[tuple[str, ...]] = ()  # names that may stand for a function and need none

    path: Path
    code: Annotated[InstanceOf[Code], PlainSerializer(lambda code: code.text)] | None = None  # read from the file

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Self:
        if info.context is not None:
            try:
                info.context.read(self)
            except UserError as error:
                raise PydanticCustomError("unread", "{why}", {"why": str(error)}) from None
        return self

    @property
    def uses_functions(self) -> tuple[str, ...]:
        """Functions of the file that it calls."""
        raise NotImplementedError

    def refuse(self, fault: str) -> NoReturn:
        """Raise the error that names the file and its fault."""
        raise UserError(f"{self.path}: {fault}")

    def run(self, name: str, /, *arrays: Any, **named: Any) -> Any:
        """Return the result of a function of the file on arrays, which it cannot change; UserError if it raises."""
        if self.code is None:
            raise ValueError(f"{self.path} has not been read; load the design it belongs to")
        function = self.code.function(name)
        try:
            return function(*map(_read_only, arrays), **{k: _read_only(v) for k, v in named.items()})
        except Exception as error:
            said = f"{self.code.place}: {name} raises {_brief(error)}"
            if "read-only" in str(error):  # no failure of a replicate
                raise UserError(f"{said}: data are shared by all methods; copy an array before you change it") from None
            raise UserError(said) from error


def _read_only(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        array = array.view()
        array.flags.writeable = False
    return array


def _brief(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


class Own(OwnCode):
    """A function of the user's own Python file, which takes one array."""

    name: FunctionName

    @property
    def uses_functions(self) -> tuple[str, ...]:
        """The function."""
        return (self.name,)

    def call(self, shape: tuple[int, ...], array: NDArray) -> NDArray[np.float64]:
        """Return the numbers of this shape that the function gives for an array, which it cannot change."""
        found, place = np.asarray(self.run(self.name, array)), self.code.place if self.code else ""
        if found.shape != shape or found.dtype.kind not in "fiub":
            kind = f"{found.dtype} of shape {found.shape}"
            raise UserError(f"{place}: {self.name} returns {kind}; return numbers of shape {shape}")
        return found.astype(np.float64)

    def described(self) -> str:
        """Return the label by default."""
        return f"{self.name} of {self.path}"


class OwnFunction(Own):
    """m(x) by a function of a Python file: arrays x of features first, x[0] the first feature, to values like x[0].

    Each value must follow from its own point alone, as points come in arrays of any size.
    """

    kind: Literal["own"]


class OwnHeads(Own):
    """Key projections W_h by a function of a Python file, which returns an array (head, feature, dimension).

    It takes normals, which are independent and standard, of that shape.  They follow from head_seed, and from the batch
    if heads are a population.  Every head must have full rank; the columns need not be orthonormal.
    """

    kind: Literal["own"] = Field("own", exclude=True)
