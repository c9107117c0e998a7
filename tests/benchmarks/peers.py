"""The same work by other libraries, each as well as it can be had without writing kernels, and a loop in C.

Every peer gives W0 and W1 of `workloads` from drawn keys, and draws keys and noise by its own generator for the whole
job.  Distances are products with keys that carry −|k|²/2 as one more dimension.  For NumPy, |k_q|²/2 is taken off by
another: exponents are never positive, and no pass looks for the largest; elsewhere it cancels."""

import ctypes
import functools
import importlib.util
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Arrays, Size

from simstudy.kernels.jit import aligned

COMPILER = "cc"
FLAGS = ("-O3", "-march=native", "-ffast-math", "-funroll-loops", "-fPIC")
_NAMES = {"float32": ("float", ctypes.c_float), "float64": ("double", ctypes.c_double)}
Job = Callable[[np.ndarray, np.ndarray], Any]
"""Takes keys (R, d, n) and values (R, n)."""
_QUERIES_AT_ONCE = 8
_ENSEMBLES_AT_ONCE = 8
"""What fused attention takes in one call: fewer leave it waiting for calls, more leave the caches."""


@functools.cache
def _built(dtype: str, p: int) -> Any:
    real, scalar = _NAMES[dtype]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "rival.so"
        source = Path(__file__).with_name("rival.c")
        defined = (f"-DREAL={real}", f"-DWIDE={int(real == 'double')}", f"-DP={p}")
        compiled = Path(folder) / "rival.o"
        subprocess.run([COMPILER, *FLAGS, *defined, "-c", str(source), "-o", str(compiled)], check=True)
        # Linked with -ffast-math, it would take subnormal numbers from the whole process as it is loaded.
        subprocess.run([COMPILER, "-shared", str(compiled), "-o", str(library), "-lm"], check=True)
        function = ctypes.CDLL(str(library)).rival
    pointer = np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")
    function.argtypes, function.restype = [*[pointer] * 4, scalar, *[ctypes.c_long] * 6, *[pointer] * 4], None
    return function


def job_of(arrays: Arrays, with_gram: bool) -> Job:
    """Return a job for estimates, or for means and Gram matrices."""
    (n_heads, d, p), dtype = arrays.projections.shape, arrays.keys.dtype
    function = _built(dtype.name, p)
    projections = np.ascontiguousarray(arrays.projections.transpose(0, 2, 1))
    points, scale = np.ascontiguousarray(arrays.seen[1], dtype), -0.5 / arrays.bandwidth**2

    def job(keys: np.ndarray, values: np.ndarray) -> Any:
        n, shape = keys.shape[2], (len(keys), len(points), n_heads)
        means, grams = np.empty(shape, dtype), np.empty((*shape, n_heads) if with_gram else 0, dtype)
        room = aligned((n_heads, p + 1, n), dtype), aligned((n_heads + 3, 256), dtype, np.zeros)
        function(keys, values, projections, points, scale, len(keys), d, n, n_heads, len(points), with_gram, *room,
                 means, grams)  # fmt: skip
        return (means, grams) if with_gram else means

    return job


@dataclass(frozen=True)
class Peer:
    """One library: prepares a job for W0, or with Gram matrices W1, and the drawing of keys (R, d, n), noise (R, n)."""

    name: str
    needs: str
    job: Callable[[Arrays, bool], Job]
    drawn: Callable[[Size], Callable[[], tuple[Any, Any]]] | None
    least_replicates: int = 1
    """Replicates that one call is given at least."""

    @property
    def missing(self) -> str:
        found = shutil.which(self.needs) if self.needs == COMPILER else importlib.util.find_spec(self.needs)
        return "" if found else f"{self.needs} is not installed"


def _augmented(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Stacked projections (H p, d), and queries (H, Q, p + 1) over b², of distances the last for −|k|²/2, else p.

    Of absorbed queries slopes (H Q, d) of logits, and queries (H, Q, 0).
    """
    (projections, queries), scale = arrays.seen, arrays.bandwidth**2
    stacked = np.ascontiguousarray(projections.transpose(0, 2, 1).reshape(-1, projections.shape[1]))
    if projections is not arrays.projections:
        return (stacked / scale).astype(stacked.dtype), queries.transpose(1, 0, 2)[..., :0]
    last = np.ones((*queries.shape[:2], 1 if arrays.logits == "distance" else 0))
    return stacked, (np.concatenate([queries, last], axis=2) / scale).transpose(1, 0, 2).astype(stacked.dtype)


def _numpy_job(arrays: Arrays, with_gram: bool) -> Job:
    stacked, queries = _augmented(arrays)
    if arrays.logits == "distance":  # one more coordinate of queries, −|k_q|²/2b²: (H, Q, p + 2)
        reach = -0.5 * np.square(queries[..., :-1]).sum(axis=2, keepdims=True) * arrays.bandwidth**2
        queries = np.concatenate([queries, reach], axis=2).astype(queries.dtype)
    n_heads, n_queries, width = queries.shape

    def job(keys: np.ndarray, values: np.ndarray) -> Any:
        means = np.empty((len(keys), n_queries, n_heads), queries.dtype)
        grams = np.empty((*means.shape, n_heads) if with_gram else 0, queries.dtype)
        for r, y in enumerate(values):
            sides = np.stack([y, np.ones_like(y)], axis=1)
            augmented = projected = (stacked @ keys[r]).reshape(n_heads, -1, y.size)
            if projected.shape[1] < width:
                augmented = np.empty((n_heads, width, y.size), queries.dtype)
                augmented[:, :-2] = projected
                np.einsum("hkn,hkn->hn", augmented[:, :-2], augmented[:, :-2], out=augmented[:, -2])
                augmented[:, -2] *= -0.5
                augmented[:, -1] = 1.0
            for start in range(0, n_queries, step := _QUERIES_AT_ONCE if width else n_queries):
                chunk = slice(start, start + step)
                weights = queries[:, chunk] @ augmented if width else augmented[:, chunk]
                np.exp(weights, out=weights)
                sums = weights @ sides
                means[r, chunk] = (sums[..., 0] / sums[..., 1]).T
                if with_gram:
                    rows, mass = weights.transpose(1, 0, 2), sums[..., 1].T
                    grams[r, chunk] = (rows @ rows.mT) / (mass[:, :, None] * mass[:, None, :])
        return (means, grams) if with_gram else means

    return job


def numpy_drawn(size: Size, seed: int | tuple[int, ...] = 1) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return lambda: tuple(rng.standard_normal(shape, dtype=size.dtype) for shape in size.drawn)


def _torch_inputs(arrays: Arrays) -> tuple[Any, ...]:
    import torch

    torch.set_num_threads(1)
    stacked, queries = _augmented(arrays)
    return torch, torch.from_numpy(stacked), torch.from_numpy(queries.copy())


def _torch_augmented(torch: Any, keys: Any, stacked: Any, queries: Any) -> Any:
    """Keys of all heads with −|k|²/2 beneath, if queries have a coordinate for it: (R, H, p + 1, n)."""
    projected = (stacked @ keys).unflatten(1, (len(queries), -1))
    if projected.shape[2] >= queries.shape[2]:
        return projected
    return torch.cat([projected, -0.5 * projected.square().sum(2, keepdim=True)], dim=2)


def torch_estimates(arrays: Arrays) -> Job:
    torch, stacked, queries = _torch_inputs(arrays)
    n_heads, _, width = queries.shape

    def ensembles(keys: Any, values: Any) -> Any:
        augmented = _torch_augmented(torch, keys, stacked, queries).mT
        if not width:
            return (torch.softmax(augmented.mT, dim=-1) @ values[:, None, :, None])[..., 0].mT
        # Fused attention wants widths that are multiples of 8.
        pad = (0, -width % 8)
        k, q = (torch.nn.functional.pad(x, pad) for x in (augmented, queries.expand(len(keys), -1, -1, -1)))
        v = torch.nn.functional.pad(values[:, None, :, None].expand(-1, n_heads, -1, 1), (0, 7))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)[..., 0].mT

    def job(keys: np.ndarray, values: np.ndarray) -> Any:
        with torch.inference_mode():
            pieces = (torch.from_numpy(x).split(_ENSEMBLES_AT_ONCE) for x in (keys, values))
            return torch.cat([ensembles(x, y) for x, y in zip(*pieces, strict=True)]).numpy()

    return job


def torch_moments(arrays: Arrays) -> Job:
    torch, stacked, queries = _torch_inputs(arrays)
    n_heads, _, width = queries.shape

    def job(keys: np.ndarray, values: np.ndarray) -> tuple[Any, Any]:
        means, grams = [], []
        with torch.inference_mode():
            for x, y in zip(torch.from_numpy(keys), torch.from_numpy(values), strict=True):
                augmented = _torch_augmented(torch, x[None], stacked, queries)[0]
                for chunk in (queries if width else augmented).split(_QUERIES_AT_ONCE, dim=1):
                    rows = torch.softmax(chunk @ augmented if width else chunk, dim=-1).transpose(0, 1).contiguous()
                    means.append(rows @ y)
                    grams.append(rows @ rows.mT)
            shape = (len(keys), queries.shape[1], n_heads)
            return torch.cat(means).reshape(shape).numpy(), torch.cat(grams).reshape(*shape, n_heads).numpy()

    return job


def torch_drawn(size: Size) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    import torch

    dtype = getattr(torch, size.dtype)
    return lambda: tuple(torch.randn(shape, dtype=dtype).numpy() for shape in size.drawn)


def _jax_job(arrays: Arrays, with_gram: bool) -> Job:
    import jax
    import jax.numpy as jnp

    stacked, queries = _augmented(arrays)
    n_heads, _, width = queries.shape

    def one(keys: Any, values: Any) -> Any:
        augmented = projected = (stacked @ keys).reshape(n_heads, -1, keys.shape[1])
        if projected.shape[1] < width:
            augmented = jnp.concatenate([projected, -0.5 * jnp.square(projected).sum(1, keepdims=True)], axis=1)

        def at_query(query: Any) -> Any:
            weights = jax.nn.softmax(jnp.einsum("hk,hkn->hn", query, augmented) if width else query, axis=-1)
            return (weights @ values, weights @ weights.T) if with_gram else weights @ values

        # Queries one after another: all at once need more memory than the caches hold.
        return jax.lax.map(at_query, (queries if width else augmented).transpose(1, 0, 2), batch_size=_QUERIES_AT_ONCE)

    compiled = jax.jit(jax.vmap(one))
    return lambda keys, values: jax.block_until_ready(compiled(jnp.asarray(keys), jnp.asarray(values)))


def jax_drawn(size: Size) -> Callable[[], tuple[Any, Any]]:
    import jax

    samples = [jax.jit(functools.partial(jax.random.normal, shape=shape, dtype=size.dtype)) for shape in size.drawn]
    numbers = itertools.count()
    return lambda: tuple(np.asarray(sample(jax.random.key(next(numbers)))) for sample in samples)


PEERS = (
    Peer("NumPy + BLAS", "numpy", _numpy_job, numpy_drawn),
    Peer("C", COMPILER, job_of, None),
    Peer("torch", "torch", lambda a, gram: (torch_estimates, torch_moments)[gram](a), torch_drawn, _ENSEMBLES_AT_ONCE),
    Peer("JAX", "jax", _jax_job, jax_drawn),
)
