"""The text of a file of the user's own functions, and what else decides what these compute: it identifies results.

A last line names what the text rests on: the package that offers it, by a digest of its files, and the packages that it
imports, by version.  Versions of NumPy and SciPy stand in the identity of everything that is stored.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

from simstudy.design.files import read_regular
from simstudy.errors import UserError

MAX_BYTES = 1 << 18
"""Largest Python file that is read: it travels with every task."""
MAX_PACKAGE_BYTES = 64 << 20
"""Largest package that is read to identify what its functions compute."""
_IDENTIFIED = {"numpy", "scipy", "numba"}


def source_of(path: Path, module: str | None = None) -> str:
    """Return the text of a file of functions, with a line on what it rests on, if that is anything.

    Parameters
    ----------
    path
        The file.
    module
        Its name, if an installed package offers it.

    Raises
    ------
    UserError
        If it cannot be read, or rests on what cannot be told.
    """
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text; save it as UTF-8") from None
    folder = None if module is None else _package(path, module)
    files = [path] if folder is None else sorted(folder.rglob("*.py"))
    rests = [] if folder is None else [f"{folder.name} {_digest(folder)}"]
    names = {
        name
        for file in files
        for name in _imported(file, text if folder is None else file.read_text("utf-8", "replace"))
    }
    own = path.stem if folder is None else folder.name
    for name in sorted(names - _IDENTIFIED - {own} - sys.stdlib_module_names):
        if folder is None and ((path.parent / f"{name}.py").exists() or (path.parent / name).is_dir()):
            remedy = "which would not identify what is computed; write it into this file, or offer a package"
            raise UserError(f"imports {name} from beside it, {remedy}")
        rests += [f"{package} {version(package)}" for package in _distributions().get(name, ())]
    return f"{text}\n# rests on {', '.join(rests)}\n" if rests else text


def _imported(path: Path, text: str) -> Iterator[str]:
    """Yield the names of the packages that a file imports anywhere; of what is not Python, nothing."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def _package(path: Path, module: str) -> Path | None:
    """Return the folder of the topmost package around a module; None if it is in none."""
    depth = module.count(".") - (path.name != "__init__.py")
    return path.parents[depth] if depth >= 0 else None


def _digest(folder: Path) -> str:
    """Digest of everything in a folder but what Python compiles from it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    if sum(file.stat().st_size for file in files) > MAX_PACKAGE_BYTES:
        raise UserError(f"its package is larger than {MAX_PACKAGE_BYTES} bytes, too large to be told from others")
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(found)) for name, found in packages_distributions().items()}
