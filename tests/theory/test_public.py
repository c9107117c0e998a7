"""What `simstudy.theory` offers: every public function of its modules for users, exported and taught."""

import importlib
import inspect
import re

import pytest

from simstudy import theory

FOR_USERS = (
    "closed_forms", "compact_kernels", "exact.logits", "exact.moments", "leading", "measures",
    "weighting",
)  # fmt: skip


@pytest.mark.parametrize("name", FOR_USERS)
def test_public_functions__are_exported(name):
    module = importlib.import_module(f"simstudy.theory.{name}")
    functions = {
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    assert functions and functions <= set(theory.__all__)


def test_docstring__says_which_function_answers_what():
    taught = set(re.findall(r":func:`(\w+)`", theory.__doc__))
    functions = {name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))}
    assert taught == functions
