"""Numba, its settings and the processor that it compiles for; no file in the current folder decides."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

with contextlib.chdir(Path(__file__).parent):
    import numba
from llvmlite import binding
from numba.core.codegen import get_host_cpu_features

_config: Any = numba.config
# Numba looks for its file again before it compiles, and reads regular ones only.
_config._config_fname = os.devnull
if _config.CPU_FEATURES is None:
    _config.CPU_FEATURES = get_host_cpu_features()
    if "+avx512f" in _config.CPU_FEATURES:
        # For most processors with 512-bit vectors LLVM prefers those of 256 bits, a caution of 2017: on a server of
        # 2024 it halves the rate of products (measured 124 instead of 220 GFLOP/s).
        _config.CPU_FEATURES += ",-prefer-256-bit"

VECTOR_BYTES = next(
    (width for feature, width in (("+avx512f", 64), ("+avx2", 32)) if feature in _config.CPU_FEATURES), 16
)

_DECIDING = re.compile(
    r"(?!.*(CUDA|WARN))(OPT|BOUNDSCHECK|.*VECTORIZE|.*SVML|((EN|DIS)ABLE|DEBUG|LLVM|EXTEND|PARFOR|NRT|JIT)_?.*)"
)


def processor() -> str:
    """Return processor, features and settings that kernels are compiled for: they decide the last bits of a sum."""
    stated = (f"{name}={value}" for name, value in sorted(vars(_config).items()) if _DECIDING.fullmatch(name))
    return " ".join([_config.CPU_NAME or binding.get_host_cpu_name(), _config.CPU_FEATURES, *stated])
