"""The source of functions that a simulation keeps, against functions that run from it alone."""

import importlib
import linecache
import runpy
import sys

import numpy as np
import pytest

from simstudy.errors import UserError
from simstudy.simulation import source_text

HELPERS = {
    "module": ("import ours\ndef f(x):\n    return ours.g(x)", "ours, which f uses, is of ours, which is not inst"),
    "inner": ("def f(x):\n    import ours\n    return ours.g(x)", "f imports ours, which is not installed"),
    "class": ("class C: pass\ndef f(x):\n    return C()", "C, which f uses, is of theirs, which is not installed"),
    "name": ("from ours import h\ndef g(x):\n    return x\ndef f(x):\n    return g(x) + h(x)",
             "g, which h uses, is the name of another object too: rename one of them"),
    "builtin": ("from ours import k\ndef f(x):\n    return k(x) + sum(x)", "sum, which f uses, is the name of another"),
    "list": ("y = []\ndef f(x):\n    return y", "y, which f uses, is list: define it inside f"),
    "lambda": ("g = lambda x: x\ndef f(x):\n    return g(x)", "give a function that is defined by def"),
    "attribute": ("mean = []\ndef f(x):\n    return x.mean()", np.mean),
    "copied": ("from ours import h\ndef f(x):\n    return h(x)", lambda x: 2 * x),
    "mutual": ("def f(x):\n    return x if len(x) < 2 else g(x)\ndef g(x):\n    return f(x[1:])", lambda x: x[-1:]),
    "default": ("S = 3.0\ndef f(x, *, s=S):\n    return s * x", lambda x: 3 * x),
    "annotation": ("from typing import Any as Every\ndef f(x: Every) -> Every:\n    return x", lambda x: x),
    "decorator": ("def same(g):\n    return g\n@same\ndef f(x):\n    return x", lambda x: x),
    "constants": ("import numpy as np\nA, B, C = -float('inf'), np.float64(2.0), float('nan')\n"
                  "def f(x):\n    return np.array([A, B, C])", lambda x: [-np.inf, 2.0, np.nan]),
    "alias": ("def _g(x):\n    return x\ng = _g\ndef f(x):\n    return g(x)", lambda x: x),
    "installed": ("import os.path as p\nfrom numpy.linalg import norm as n\ndef f(x):\n    return p.sep and n(x)",
                  np.linalg.norm),
    "ours": ("from simstudy import head_diversity as h\ndef f(x):\n    return h(x[:, None]).sel(index='vendi')",
             lambda x: 1.0),
}  # fmt: skip
OURS = "def g(x):\n    return 2 * x\ndef h(x):\n    return g(x)\ndef sum(x):\n    return 0\ndef k(x):\n  return sum(x)"


@pytest.mark.parametrize("name", HELPERS)
def test_source__holds_all_that_functions_use_or_says_what_it_cannot_hold(name, tmp_path, monkeypatch):
    text, expected = HELPERS[name]
    for module, source in {"ours": OURS, "theirs": text}.items():
        (tmp_path / f"{module}.py").write_text(source)
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    linecache.checkcache()
    f = importlib.import_module("theirs").f
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            source_text([f])
        return
    (tmp_path / "functions.py").write_text(source_text([f]))
    x = np.arange(4.0)
    assert np.array_equal(runpy.run_path(str(tmp_path / "functions.py"))["f"](x), expected(x), equal_nan=True)
