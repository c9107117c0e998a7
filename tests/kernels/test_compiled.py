"""Compiled code on disk: loaded where everything that decides it is the same, and then the same to the bit."""

import importlib
import os
import pkgutil

import numba
import numpy as np
import pytest
from commands import ROOT, python
from numba.core.dispatcher import Dispatcher
from test_imports import graph as graph

import simstudy
from simstudy.data import addresses
from simstudy.kernels import compact, compiled, tiles
from simstudy.kernels.compiled import Unstated, digest, key_of
from simstudy.kernels.jit import kernel


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMSTUDY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(place):
    return sorted(path for path in place.rglob("*") if path.is_file())


def again(dispatcher):
    """The kernel as another process has it: nothing is compiled yet."""
    return kernel(dispatcher.py_func)


def largest(precision="float64", of=tiles.largest_of):
    fresh = again(of)
    numbers = np.array([0.1, 0.3, 0.2], precision)
    assert fresh(numbers) == numbers[1]
    return fresh.stats.cache_hits.total() == 1


def test_kernel__is_compiled_once_for_each_precision_and_then_loaded(place):
    assert [largest(), largest(), largest("float32"), largest("float32")] == [False, True, False, True]
    assert len(entries(place)) == 2


@pytest.mark.parametrize("setting", ["off", "relative/folder"])
def test_cache__can_be_switched_off(place, monkeypatch, tmp_path, setting):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMSTUDY_CACHE", setting)
    assert [largest(), largest()] == [False, False]
    assert list(tmp_path.iterdir()) == []


def test_cache__is_in_the_cache_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("SIMSTUDY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compiled.folder().path == tmp_path / "xdg" / "simstudy" / "compiled" / digest()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiled.folder().path == tmp_path / ".cache" / "simstudy" / "compiled" / digest()


def key(dispatcher, *arguments):
    return key_of(dispatcher, tuple(numba.typeof(argument) for argument in arguments))


def test_closures__are_in_its_key():
    """The fillers of normals and of uniforms are one function but for what it closes over."""
    one, other = (addresses._FILLERS[transform] for transform in (addresses.box_muller, addresses.uniform_pair))
    assert one.py_func.__qualname__ == other.py_func.__qualname__
    assert key(one) != key(other)
    assert key(one) == key(addresses._filler(addresses.box_muller))


def test_functions_that_kernels_close_over__are_in_its_key():
    keys = {key(compact.moments_by(power)) for power in (1, 2, 3, 4)}
    assert len(keys) == 4
    compact.moments_by.cache_clear()
    assert key(compact.moments_by(3)) in keys


def test_kernel_that_closes_over_what_cannot_be_stated__is_not_kept(place):
    table = np.array([1.0, 2.0])

    def first(x):
        return table[0] + x

    first.__module__ = tiles.__name__
    with pytest.raises(Unstated):
        key(kernel(first))
    assert kernel(first)(1.0) == 2.0 and entries(place) == []


def test_kernel_of_another_module__is_not_kept(place):
    def double(x):
        return 2.0 * x

    assert kernel(double)(1.0) == 2.0 and entries(place) == []
    # Negative control: in a module whose source is in the digest it is.
    double.__module__ = tiles.__name__
    assert kernel(double)(1.0) == 2.0 and len(entries(place)) == 1


SETTINGS = [("CPU_FEATURES", "+sse"), ("OPT", 1), ("BOUNDSCHECK", 1), ("NUMBA_NUM_THREADS", 17)]


@pytest.mark.parametrize("setting, value", SETTINGS)
def test_digest__tells_processors_and_settings_of_numba_apart_but_not_threads(monkeypatch, setting, value):
    before = digest()
    monkeypatch.setattr(numba.config, setting, value)
    assert (digest() == before) == (setting == "NUMBA_NUM_THREADS")


def test_digest__follows_sources_and_versions(monkeypatch):
    before = digest()
    monkeypatch.setitem(compiled._SOURCES, "simstudy.kernels.vectors", b"# edited")
    edited = digest()
    monkeypatch.setattr(np, "__version__", "0.1")
    assert len({before, edited, digest()}) == 3


def modules():
    names = (module.name for module in pkgutil.walk_packages(simstudy.__path__, "simstudy."))
    # Modules for GPUs have no kernels of the CPU.
    return [importlib.import_module(name) for name in names if not name.endswith(("__main__", "cuda", "cuda_heads"))]


def test_sources__are_those_of_all_kernels_and_every_key_can_be_stated():
    kernels = {id(value): value for module in modules() for value in vars(module).values()
               if isinstance(value, Dispatcher)}  # fmt: skip
    kernels |= {id(filler): filler for filler in addresses._FILLERS.values()}
    assert len(kernels) > 50
    for found in kernels.values():
        assert found.__module__ in compiled._SOURCES
        assert key(found)


def test_sources_of_kernels__import_no_other_of_ours(graph):
    """Keys do not follow what a kernel reaches, nor what operations on vectors do when they generate code."""
    sources = {name.removesuffix(".__init__") for name in compiled._SOURCES}
    for name in sources:
        assert graph.find_modules_directly_imported_by(name) <= sources, name


EVALUATE = """
import hashlib
import numpy as np
from numba.core import event
from simstudy.kernels import nw_moments

rng, found = np.random.default_rng(0), hashlib.sha256()
with event.install_recorder("numba:compile") as compilations:
    for real in ("float32", "float64"):
        keys, values = rng.normal(size=(2, 3, 4, 200)).astype(real), rng.normal(size=(2, 200)).astype(real)
        for n_queries in (2, 16):
            queries = 3.0 * rng.normal(size=(n_queries, 3, 4))
            for variances in (None, np.abs(values)):
                for array in nw_moments(keys, values, variances, queries, 1.0, "distance"):
                    found.update(b"" if array is None else array.tobytes())
print(len(compilations.buffer), found.hexdigest())
"""


@pytest.mark.parametrize("anew", [(), pytest.param(({"SIMSTUDY_CACHE": "off"},), marks=pytest.mark.rare)])
def test_kernels_of_few_and_of_many_queries__are_compiled_in_no_later_process_to_the_same_bits(anew):
    """A function that a kernel hands to one that is not inlined is an address of this process: not to be kept.

    And one that another calls, not inlined, is there twice where both are compiled, once where one is loaded.
    """
    environment = {name: value for name, value in os.environ.items() if name != "SIMSTUDY_CACHE"}
    runs = [python("-c", EVALUATE, cwd=ROOT, env=environment | own).stdout.split() for own in ({}, {}, *anew)]
    assert int(runs[1][0]) == 0 and len({bits for _, bits in runs}) == 1
    assert all(int(n_compiled) > 0 for n_compiled, _ in runs[2:])


def test_kernels__call_no_other_that_is_not_inlined():
    """Of two copies of a function, in a process that compiles both, the linker takes either: last bits would differ."""
    for module in modules():
        found = {each: value for each, value in vars(module).items() if isinstance(value, Dispatcher)}
        for each in found.values():
            called = [found[other] for other in found.keys() & set(each.py_func.__code__.co_names)]
            options = [other.targetoptions for other in called]
            assert all(given.get("forceinline") or not given.get("fastmath") for given in options), each


def test_names_of_compiled_code__are_those_of_one_process():
    """Also of one that was forked: the linker takes equal names for equal code."""
    show = (
        "import os\nfrom simstudy.kernels import compiled\nchild = os.fork()\n"
        "child and os.waitpid(child, 0)\nprint(next(compiled.FunctionIdentity._unique_ids))"
    )
    told = python("-c", show, cwd=ROOT).stdout.split()
    assert len({*told, str(next(compiled.FunctionIdentity._unique_ids))}) == 3
