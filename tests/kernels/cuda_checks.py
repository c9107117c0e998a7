"""Checks of the CUDA kernels against those of the CPU, on a GPU or on Numba's simulator, whichever this process has.

Not collected with the tests: `test_cuda` runs them in processes of their own, since Numba chooses between GPU and
simulator when it is imported.  Sizes are tiny because the simulator runs some thousand threads a second.
"""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import numpy as np
import pytest
from builders import RIDGE, UNCLAIMED, minimal_cell, run, varied, write_design
from kernel_problems import assert_solved, problem

from simstudy.attention.members import NO_INDICES, Members
from simstudy.data.addresses import Role, draw
from simstudy.kernels import cuda as cuda_kernels
from simstudy.kernels import cuda_heads, project
from simstudy.kernels.devices import computing_on, gpu_name, on_device, stream
from simstudy.kernels.jit import cuda_compiler, cuda_simulated
from simstudy.replicates import moments
from simstudy.replicates.batch import simulate_batch, update

if cuda_simulated():
    import simulator  # noqa: F401

    # Its threads take turns: on several cores every turn wakes another, which costs more than the work.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
# (R, Q, H, p, n): one head, heads of one group and of several unequal ones; keys fewer than those that a warp takes at
# once, and on either side of whole tiles.
SHAPES = ((1, 1, 1, 1, 1), (2, 2, 3, 2, 32), (1, 3, 5, 3, 35), (1, 1, 17, 1, 7), (1, 2, 70, 1, 9))
KINDS = (("distance", "float64"), ("dot_product", "float32"), ("distance", "float32"), ("dot_product", "float64"))
PLAIN = {"regression": RIDGE, "n_features": 4, "batch_size": 16, "control": "none"}


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("first", [0, 2**32 - 1, 2**56 - 2])
def test_keys__are_drawn_where_they_are_projected_as_by_the_cpu(first, precision):
    """Rows, columns and replicates each beyond what one thread takes; a projection on single features gives these."""
    frame, n_columns = np.eye(7, 6, dtype=precision)[None], cuda_kernels.COLUMNS
    keys = draw("243f6a8885a308d313198a2e03707344", Role.KEYS, first, 2, 19, 7, precision)
    with computing_on("cuda"):
        made, read = (np.asarray(project(x, frame)) for x in (keys, np.asarray(keys)))
    assert n_columns < 6 and len(np.unique(made)) == made.size
    np.testing.assert_array_equal(read[:, 0], np.asarray(keys)[:, :6])
    np.testing.assert_allclose(made, read, rtol={"float32": 5e-7, "float64": 1e-15}[precision])


def assert_agree(given):
    """Both devices within rounding of the naive solution, so within twice that of each other; products of the GPU."""
    assert_solved(given)
    with computing_on("cuda"):
        return assert_solved(given)[1]


@pytest.mark.parametrize("shape, logits, precision", [
    pytest.param(shape, *kind, marks=() if SHAPES.index(shape) == KINDS.index(kind) else pytest.mark.rare)
    for shape in SHAPES for kind in KINDS
])  # fmt: skip
def test_moments__are_the_formula(shape, logits, precision):
    assert_agree(problem(shape, logits, precision))


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=pytest.mark.rare) for k in KINDS[1:])])
def test_moments__of_queries_for_each_replicate_and_far_ones(kind):
    assert_agree(problem((2, 2, 2, 2, 20), *kind, own_queries=True))
    assert_agree(problem((1, 1, 2, 2, 20), *kind, spread=100.0))


AT_ONCE = cuda_heads.THREADS * cuda_heads.TOGETHER  # keys whose weights are summed in their type, at one query


@pytest.mark.parametrize("shape", [
    (1, cuda_heads.LANES + 3, 1, 1, 3), (1, 1, 2, 1, AT_ONCE + 18), (1, 3, 2, 70, 11), (1, 2, 9, 33, 5)
])  # fmt: skip
def test_moments__of_more_queries_keys_or_dimensions_than_a_block_takes_at_once(shape):
    assert_agree(problem(shape))


def test_moments__of_ties_and_of_nearer_keys_tile_by_tile_are_the_formula():
    given = problem((1, 1, 3, 1, 40), "distance", "float64")
    given.keys[...] = np.round(given.keys)
    assert_agree(given)
    # Far queries: the weight of the reference is 1 whatever is lost of its distance.
    far = problem((1, 1, 2, 3, 5), "distance", "float32", bandwidth=1e-4)
    far.keys[...] = far.keys[..., :1]
    assert_agree(far)
    # The nearest key comes last, far beyond the reference: all is summed again.
    for farthest in (4.0, 40.0, 400.0):
        given.keys[...] = np.linspace(farthest, 0.0, 40)
        given.queries[...] = 0.0
        assert_agree(given)


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.rare)])
def test_undefined_estimates__are_nan_on_both(precision):
    given = problem((2, 1, 5, 1, 9), "distance", precision)
    given.keys[0, 1, 0, 3] = np.nan
    given.keys[1, 4] = np.inf
    assert np.isfinite(assert_agree(given)).sum() == 2 * 16


def test_a_replicate__does_not_depend_on_its_company():
    given = problem((3, 1, 2, 2, 40))
    with computing_on("cuda"):
        whole, alone = given.moments(), given.part(slice(1, 2)).moments()
    np.testing.assert_equal([each[1:2] for each in whole], [*alone])


def test_sums_over_replicates__are_those_of_the_cpu_and_leave_out_the_undefined():
    rng = np.random.default_rng(3)
    means, grams, control, target = map(rng.standard_normal, ((6, 2, 3), (6, 2, 3, 3), (6, 2, 9), 2))
    grams += grams.swapaxes(2, 3)
    means[4, 1, 2] = np.nan
    there, found = [on_device(x, "float64") for x in (means, grams, control)], []
    for given in ((means, grams, control), there):
        start, members = moments.empty(3, target, 3, 1, controlled=True), Members(*given[:2], NO_INDICES, {}, given[2])
        found.append(update(start, range(3), 10, members, np.arange(6.0)[:, None]))
    assert list(found[1].failed) == [14]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13, atol=1e-13)
    square = ((means.mean(axis=2) - target) ** 2).mean(axis=1) + grams.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(np.asarray(cuda_kernels.mean_squares(*there[:2], target)), square, rtol=1e-13)


# Largest difference of a sum of moments between devices, relative to the largest such sum: some hundred roundings.
BOUND = {"float32": 1e-5, "float64": 1e-13}
TERMS = [
    RIDGE, {"kind": "linear", "coefficients": [1.0, -2.0]}, {"kind": "quadratic", "coefficients": [0.5]},
    {"kind": "interaction", "coordinates": [1, 3]}, {"kind": "additive", "wave": "cos", "n_active": 2},
]  # fmt: skip
UNEVEN = {"noise": {"kind": "heteroscedastic", "strength": 2.0}, "regression": {"kind": "sum", "terms": TERMS}}
CONTROL = {"control": "expansion", "bandwidth": 1.5}


@pytest.mark.parametrize("given", [
    UNEVEN | CONTROL, CONTROL, {"arrangement": "haar_redrawn", "n_heads": 5},
    *(pytest.param(each, marks=pytest.mark.rare) for each in (
        UNEVEN | {"dtype": "float32", "noise_treatment": "drawn"},
        {"logits": "dot_product", "dtype": "float32", "n_features": 6, "head_dim": 3},  # four coordinates are drawn
        {"logits": "dot_product", "noise_treatment": "drawn"}, {"mask": {"kind": "banded", "width": 2}},
        {"key_scale": "normalised"}, {"key_distribution": {"kind": "student_t", "df": 5.0}},
    )),
], ids=" ".join)  # fmt: skip
def test_batch__has_the_moments_of_the_cpu(given):
    queries = {"kind": "points", "points": [[0.5, -1.0]]}
    cell = minimal_cell(**PLAIN | {"n_keys": 5, "queries": queries, "dtype": "float64"} | given)
    (cpu,), (gpu,) = simulate_batch([cell], 3), simulate_batch([cell], 3, "cuda")
    for name in ("error_sum", "product_sum", "statistic_sum", "target", "control_sum"):
        one, other = getattr(cpu, name), getattr(gpu, name)
        scale = np.nanmax(np.abs(one), initial=0.0)
        assert (scale > 0.0) == (name != "control_sum" or cell.controlled), name
        assert np.nanmax(np.abs(one - other), initial=0.0) <= BOUND[cell.simulation.dtype] * scale, name
    np.testing.assert_array_equal(cpu.n_defined, gpu.n_defined)
    # Negative control: the next batch is not that near.
    (later,) = simulate_batch([cell], 4)
    assert np.abs(later.product_sum - gpu.product_sum).max() > 1e-3 * np.abs(gpu.product_sum).max()


def test_batch__moves_as_many_bytes_for_more_keys_and_few_for_each_replicate(monkeypatch):
    """Neither keys nor anything as long crosses the bus; the sums do, and three numbers of each replicate."""
    sent, fetched, made, totals = [], [], [], []
    array = type(on_device(np.zeros(1), "float64"))
    upload, fetch, new = array.copy_to_device, array.copy_to_host, cuda_compiler().device_array
    monkeypatch.setattr(array, "copy_to_device", lambda to, x, **how: sent.append(x.nbytes) or upload(to, x, **how))
    monkeypatch.setattr(array, "copy_to_host", lambda x, *a, **how: fetched.append(x.nbytes) or fetch(x, *a, **how))
    monkeypatch.setattr(cuda_compiler(), "device_array", lambda *x: made.append(x) or new(*x))
    for n_keys in (2, 4):
        cell = minimal_cell(**PLAIN | {"n_features": 2, "n_heads": 1, "head_dim": 1}, n_keys=n_keys)
        simulate_batch([cell], 1, "cuda")  # makes what all batches share
        sent.clear(), fetched.clear(), made.clear()
        (found,) = simulate_batch([cell], 0, "cuda")
        totals.append(sum(sent))
        assert not made  # the memory of the batch before is used again
        assert sum(fetched) == found.error_sum.nbytes + found.product_sum.nbytes + 24 * PLAIN["batch_size"]
    assert totals[0] == totals[1] > 0


def test_threads__have_streams_of_their_own_and_the_same_bits(monkeypatch):
    start, turn, cell = cuda_kernels._start, threading.Lock(), minimal_cell(**PLAIN, n_keys=3)
    batch = lambda number: (id(stream()), simulate_batch([cell], number, "cuda")[0].product_sum)  # noqa: E731

    def start_in_turn(*arguments):  # as the simulator wants it
        with turn:
            return start(*arguments)

    monkeypatch.setattr(cuda_kernels, "_start", start_in_turn)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(batch, range(2)))
    assert len({id(stream()), *(own for own, _ in found)}) == 3
    np.testing.assert_equal([sums for _, sums in found], [batch(number)[1] for number in range(2)])


@pytest.mark.rare
def test_executor__computes_on_the_device_under_names_of_its_own(tmp_path, monkeypatch):
    if cuda_simulated():
        monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", str(Path(__file__).with_name("simulator.py")))
        dask.config.refresh()
    few = dict.fromkeys(("min_replicates", "max_replicates", "batch_size"), 16)
    path, seen = write_design(tmp_path, varied(UNCLAIMED, n_keys=5, angle=[0], bandwidth=[0.8], **few)), []
    for executor in ("cuda", "cuda", "serial"):
        (tmp_path / "tiny" / "quick" / "provenance.json").unlink(missing_ok=True)  # or results that stand would be read
        run(path, output=tmp_path, executor=executor)
        seen.append(json.loads((tmp_path / "tiny" / "quick" / "provenance.json").read_text()))
    assert [each["run"]["batches_computed"] for each in seen] == [1, 0, 1]
    assert seen[0]["device"] == gpu_name() and seen[2]["device"] == "CPU"
    assert seen[0]["engine"] != seen[2]["engine"] and seen[0]["run"]["workers"] == (1 if cuda_simulated() else 2)
