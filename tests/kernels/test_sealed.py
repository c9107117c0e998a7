"""The folder of sealed entries: what is not certainly one's own and whole is not read."""

import os
from functools import partial

import pytest

from simstudy.kernels import sealed
from simstudy.kernels.sealed import SealedFolder, seal, unseal

KEY, CONTENT = b"a kernel", b"its code"


@pytest.fixture
def folder(tmp_path):
    folder = SealedFolder(tmp_path / "compiled" / "0123")
    folder.write(KEY, CONTENT)
    assert folder.read(KEY) == CONTENT
    return folder


def entry_of(folder):
    (entry,) = folder.path.iterdir()
    return entry


def test_entries__are_private_read_only_and_found_by_their_key_alone(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert entry_of(folder).stat().st_mode & 0o777 == 0o400
    assert folder.read(b"another kernel") is None


def test_damage__anywhere_is_seen():
    entry = seal(KEY, CONTENT)
    assert unseal(KEY, entry) == CONTENT
    for place in range(len(entry)):
        flipped = bytes(byte ^ (number == place) for number, byte in enumerate(entry))
        assert unseal(KEY, flipped) is None
        assert unseal(KEY, entry[:place]) is None
    assert unseal(KEY, entry + b"\0") is None
    # Key and content cannot trade bytes.
    assert unseal(b"kern", seal(b"kernel", b"code")) is None
    assert unseal(b"kernel", seal(b"kern", b"elcode")) is None


def linked(path, place):
    path.rename(place / "elsewhere")
    path.symlink_to(place / "elsewhere")


def damaged(entry, _):
    content = entry.read_bytes()[:-1] + b"!"
    entry.unlink()
    entry.write_bytes(content)
    entry.chmod(0o400)


OPEN = [partial(lambda mode, path, _: path.chmod(mode), mode) for mode in (0o620, 0o602)]
ENTERED = [partial(lambda mode, path, _: path.chmod(mode), mode) for mode in (0o750, 0o705, 0o720, 0o777)]


@pytest.mark.parametrize("spoil", [damaged, linked, *OPEN])
def test_entry_that_is_not_certainly_whole_and_ones_own__is_refused_and_can_be_written_again(folder, tmp_path, spoil):
    spoil(entry_of(folder), tmp_path)
    assert folder.read(KEY) is None
    for content in (CONTENT, b"code of later"):
        folder.write(KEY, content)
        assert folder.read(KEY) == content and len(list(folder.path.iterdir())) == 1


@pytest.mark.parametrize("spoil", [linked, *ENTERED])
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


def test_place_that_cannot_be_written__is_done_without(tmp_path):
    (tmp_path / "file").touch()
    folder = SealedFolder(tmp_path / "file" / "0123")
    folder.write(KEY, CONTENT)
    assert folder.read(KEY) is None


def test_failed_write__leaves_nothing_behind(folder, monkeypatch):
    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(sealed.os, "fsync", full)
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
