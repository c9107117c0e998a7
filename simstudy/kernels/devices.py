"""Choice of the device that computes, the CPU or a CUDA GPU, and arrays on a GPU.

A batch runs on one device from its first random number to its last sum of weights.  It is chosen by `computing_on`;
kernels and random numbers read it by `on_cuda`.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from simstudy.kernels.jit import cuda_compiler, cuda_simulated, kept_by_thread

_COMPILERS = "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink"
# One stream for each thread, so that threads are independent; copies and kernels of a stream run in order.
stream = kept_by_thread(lambda: cuda_compiler().stream())
_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextlib.contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Compute on a device, ``cpu`` or ``cuda``, in this context and thread."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def on_cuda() -> bool:
    """Return true if a GPU computes in this context."""
    return _device.get() == "cuda"


def gpu_kernels() -> Any:
    """Return the module of functions for GPUs, which takes 0.2 s to import."""
    return importlib.import_module("simstudy.kernels.cuda")


def is_on_gpu(x: object) -> bool:
    """Return true if an array is in the memory of a GPU; `numpy.asarray` copies it to the host."""
    return hasattr(x, "copy_to_host")


def on_device(x: Any, real: Any) -> Any:
    """Return an array on the GPU, copied unless it is there already."""
    if is_on_gpu(x):
        return x
    # Pageable memory is copied before the call returns, so that the array may be freed.
    copy = new_array(np.shape(x), real)
    copy.ravel().copy_to_device(np.ascontiguousarray(x, real).reshape(-1), stream=stream())
    return copy


_unused = kept_by_thread(lambda shape, real: [], most=32)  # a batch has arrays of some 20 kinds


def new_array(shape: tuple[int, ...], real: Any) -> Any:
    """Return an array on the GPU, if possible in memory of an array of this thread that is no longer referenced.

    Operations of the stream on the earlier array are done first.  A view must not outlive its array.
    """
    unused = _unused(shape, np.dtype(real))
    memory = unused.pop() if unused else cuda_compiler().device_array(shape, real)
    found = memory.reshape(shape)
    weakref.finalize(found, unused.append, memory)
    return found


def to_host(*arrays: Any) -> list[np.ndarray]:
    """Return copies of arrays on the host, with one synchronisation for all."""
    found = [x.copy_to_host(stream=stream()) for x in arrays]
    stream().synchronize()
    return found


@functools.cache
def gpu_name() -> str:
    """Return the name of the GPU, its compute capability, and the versions of compilers for it."""
    if cuda_simulated():
        return "CUDA simulator"
    gpu = cuda_compiler().gpus[0]
    major, minor = gpu.compute_capability
    installed = (each for each in importlib.metadata.distributions() if each.name in _COMPILERS)
    return " ".join([f"{gpu.name} sm_{major}{minor}", *sorted(f"{each.name} {each.version}" for each in installed)])


def visible_gpus() -> list[str]:
    """Return the names by which the environment variable CUDA_VISIBLE_DEVICES selects each usable GPU."""
    given, count = os.environ.get("CUDA_VISIBLE_DEVICES", ""), len(cuda_compiler().gpus)
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def cuda_problem() -> str:
    """Return why no GPU can be used and what to do; an empty string if one can."""
    if importlib.util.find_spec("numba_cuda") is None and not cuda_simulated():
        return "the extra for GPUs is not installed; pip install 'simstudy[cuda]'"
    usable = cuda_compiler().is_available()
    return "" if usable else "no CUDA GPU can be used here (is there one, with its driver?)"
