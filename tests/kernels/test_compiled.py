"""Compiled code on disk: loaded where all that decides it is the same, if it is certainly whole and one's own."""

import importlib
import os
import pkgutil
from unittest.mock import Mock

import numba
import numpy as np
import pytest
from commands import ROOT, python
from numba.core.dispatcher import Dispatcher
from test_imports import graph as graph

import simstudy
from simstudy.data import addresses
from simstudy.kernels import compact, compiled, sealed, tiles
from simstudy.kernels.compiled import Unstated, digest, key_of
from simstudy.kernels.jit import kernel
from simstudy.kernels.sealed import SealedFolder, seal, unseal

KEY, CONTENT = b"a kernel", b"its code"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMSTUDY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(place):
    return sorted(path for path in place.rglob("*") if path.is_file())


def largest(precision="float64", of=tiles.largest_of):
    fresh = kernel(of.py_func)  # as another process has it: nothing is compiled yet
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
    assert [largest(), largest()] == [False, False] and list(tmp_path.iterdir()) == []


def test_cache__is_in_the_cache_folder_of_the_user_under_a_digest_of_sources_and_versions(monkeypatch, tmp_path):
    monkeypatch.delenv("SIMSTUDY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compiled.folder().path == tmp_path / "xdg" / "simstudy" / "compiled" / digest()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    before = digest()
    assert compiled.folder().path == tmp_path / ".cache" / "simstudy" / "compiled" / before
    monkeypatch.setitem(compiled._SOURCES, "simstudy.kernels.vectors", b"# edited")
    edited = digest()
    monkeypatch.setattr(np, "__version__", "0.1")
    assert len({before, edited, digest()}) == 3


def key(dispatcher, *arguments):
    return key_of(dispatcher, tuple(numba.typeof(argument) for argument in arguments))


def test_closures__are_in_its_key():
    one, other = (addresses._FILLERS[transform] for transform in (addresses.box_muller, addresses.uniform_pair))
    assert one.py_func.__qualname__ == other.py_func.__qualname__ and key(one) != key(other)
    assert key(one) == key(addresses._filler(addresses.box_muller))

    # And functions that it closes over.
    keys = {key(compact.moments_by(power)) for power in (1, 2, 3, 4)}
    assert len(keys) == 4
    compact.moments_by.cache_clear()
    assert key(compact.moments_by(3)) in keys


def test_kernel_that_closes_over_what_cannot_be_stated_or_of_another_module__is_not_kept(place):
    table = np.array([1.0, 2.0])

    def first(x):
        return table[0] + x

    def double(x):
        return 2.0 * x

    first.__module__ = tiles.__name__
    with pytest.raises(Unstated):
        key(kernel(first))
    assert kernel(first)(1.0) == kernel(double)(1.0) == 2.0 and entries(place) == []
    # Negative control: in a module whose source is in the digest it is.
    double.__module__ = tiles.__name__
    assert kernel(double)(1.0) == 2.0 and len(entries(place)) == 1


def modules():
    names = (module.name for module in pkgutil.walk_packages(simstudy.__path__, "simstudy."))
    # Modules for GPUs have no kernels of the CPU.
    return [importlib.import_module(name) for name in names if not name.endswith(("__main__", "cuda", "cuda_heads"))]


def test_sources__are_those_of_all_kernels_import_no_other_of_ours_and_every_key_can_be_stated(graph):
    """Keys do not follow what a kernel reaches, nor what operations on vectors do when they generate code."""
    kernels = {id(value): value for module in modules() for value in vars(module).values()
               if isinstance(value, Dispatcher)}  # fmt: skip
    kernels |= {id(filler): filler for filler in addresses._FILLERS.values()}
    assert len(kernels) > 50
    for found in kernels.values():
        assert found.__module__ in compiled._SOURCES
        assert key(found)
    sources = {name.removesuffix(".__init__") for name in compiled._SOURCES}
    for name in sources:
        assert graph.find_modules_directly_imported_by(name) <= sources, name


EVALUATE = """
import commands, hashlib
import numpy as np
from numba.core import event
from simstudy.kernels import nw_moments

commands.compile_in_turn()
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
    runs = [python("-c", EVALUATE, cwd=ROOT / "tests", env=environment | own).stdout.split() for own in ({}, {}, *anew)]
    assert int(runs[1][0]) == 0 and len({bits for _, bits in runs}) == 1
    assert all(int(n_compiled) > 0 for n_compiled, _ in runs[2:])


def test_kernels__call_no_other_that_is_not_inlined_under_names_of_one_process():
    """Of two copies of a function, in a process that compiles both, the linker takes either: last bits would differ."""
    for module in modules():
        found = {each: value for each, value in vars(module).items() if isinstance(value, Dispatcher)}
        for each in found.values():
            called = [found[other] for other in found.keys() & set(each.py_func.__code__.co_names)]
            options = [other.targetoptions for other in called]
            assert all(given.get("forceinline") or not given.get("fastmath") for given in options), each
    # Also of one that was forked: the linker takes equal names for equal code.
    show = (
        "import os\nfrom simstudy.kernels import compiled\nchild = os.fork()\n"
        "child and os.waitpid(child, 0)\nprint(next(compiled.FunctionIdentity._unique_ids))"
    )
    assert len({*python("-c", show, cwd=ROOT).stdout.split(), str(next(compiled.FunctionIdentity._unique_ids))}) == 3


@pytest.fixture
def folder(tmp_path):
    folder = SealedFolder(tmp_path / "compiled" / "0123")
    folder.write(KEY, CONTENT)
    assert folder.read(KEY) == CONTENT
    return folder


def entry_of(folder):
    (entry,) = folder.path.iterdir()
    return entry


def test_entries__are_private_read_only_found_by_their_key_alone_and_damage_anywhere_is_seen(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700 and entry_of(folder).stat().st_mode & 0o777 == 0o400
    assert folder.read(b"another kernel") is None
    entry = seal(KEY, CONTENT)
    assert unseal(KEY, entry) == CONTENT
    for place in range(len(entry)):
        assert unseal(KEY, bytes(byte ^ (number == place) for number, byte in enumerate(entry))) is None
        assert unseal(KEY, entry[:place]) is None
    assert unseal(KEY, entry + b"\0") is None
    # Key and content cannot trade bytes.
    assert unseal(b"kern", seal(b"kernel", b"code")) is None
    assert unseal(b"kernel", seal(b"kern", b"elcode")) is None


def with_mode(mode):
    return lambda path, _: path.chmod(mode)


def linked(path, place):
    path.rename(place / "elsewhere")
    path.symlink_to(place / "elsewhere")


def damaged(entry, _):
    content = entry.read_bytes()[:-1] + b"!"
    entry.unlink()
    entry.write_bytes(content)
    entry.chmod(0o400)


@pytest.mark.parametrize("spoil", [damaged, linked, *map(with_mode, (0o620, 0o602))])
def test_entry_that_is_not_certainly_whole_and_ones_own__is_refused_and_can_be_written_again(folder, tmp_path, spoil):
    spoil(entry_of(folder), tmp_path)
    assert folder.read(KEY) is None
    for content in (CONTENT, b"code of later"):
        folder.write(KEY, content)
        assert folder.read(KEY) == content and len(list(folder.path.iterdir())) == 1


@pytest.mark.parametrize("spoil", [linked, *map(with_mode, (0o750, 0o705, 0o720, 0o777))])
def test_folder_that_others_may_enter_or_that_is_a_link__is_not_used(folder, tmp_path, spoil):
    spoil(folder.path, tmp_path)
    folder.write(b"another", b"other code")
    assert folder.read(KEY) is None and len(list(folder.path.iterdir())) == 1
    if not folder.path.is_symlink():
        folder.path.chmod(0o700)
        assert folder.read(KEY) == CONTENT and folder.read(b"another") is None


def test_folder_and_entry_of_another_user__are_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert folder.read(KEY) is None
    # The folder is mine, the entry is not.
    fstat, own = os.fstat, os.getuid() + 1

    def folders_are_own(file):
        found = fstat(file)
        return os.stat_result((*found[:4], own, *found[5:])) if found.st_mode & 0o040000 else found

    monkeypatch.setattr(os, "fstat", folders_are_own)
    assert folder.read(KEY) is None
    monkeypatch.setattr(os, "geteuid", os.getuid)
    monkeypatch.setattr(os, "fstat", fstat)
    assert folder.read(KEY) == CONTENT


def test_place_that_cannot_be_written__is_done_without_and_a_failed_write_leaves_nothing(folder, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    nowhere = SealedFolder(tmp_path / "file" / "0123")
    nowhere.write(KEY, CONTENT)
    assert nowhere.read(KEY) is None
    monkeypatch.setattr(sealed.os, "fsync", Mock(side_effect=OSError("no space left")))
    folder.write(b"another", b"other code")
    assert folder.read(b"another") is None and len(list(folder.path.iterdir())) == 1


def test_folders_of_old__make_room_and_nothing_else_does(tmp_path):
    (tmp_path / "notes").mkdir()
    for number in range(sealed.KEPT):
        SealedFolder(tmp_path / f"{number:04x}").write(KEY, CONTENT)
        os.utime(tmp_path / f"{number:04x}", (number, number))
    assert SealedFolder(tmp_path / "0000").read(KEY) == CONTENT
    SealedFolder(tmp_path / "ffff").write(KEY, CONTENT)
    kept = {path.name for path in tmp_path.iterdir()}
    # The first was used a moment ago, so the second is the oldest.
    assert kept == {"notes", "0000", *(f"{number:04x}" for number in range(2, sealed.KEPT)), "ffff"}
