"""Numba and its settings: those of the environment alone, and no file in the current folder."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

with contextlib.chdir(Path(__file__).parent):
    import numba

# Numba looks for its file again before it compiles, and reads regular ones only.
numba.core.config._config_fname = os.devnull

_DECIDING = re.compile(
    r"(?!.*(CUDA|WARN))(OPT|BOUNDSCHECK|.*VECTORIZE|.*SVML|((EN|DIS)ABLE|DEBUG|LLVM|EXTEND|PARFOR|NRT|JIT)_?.*)"
)


def deciding_settings() -> str:
    """Return Numba's settings that change its code, except the processor."""
    stated = sorted(vars(numba.config).items())
    return " ".join(f"{name}={value}" for name, value in stated if _DECIDING.fullmatch(name))
