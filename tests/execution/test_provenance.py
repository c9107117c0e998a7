"""What results say of the code that made them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from simstudy.execution import provenance


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_commit__is_that_of_the_checkout_and_tells_of_changes(monkeypatch, tmp_path):
    git = ["git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / "code.py").write_text("1\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "code"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    commit = provenance._commit.__wrapped__
    assert len(commit()) == 12 and head.startswith(commit())
    (tmp_path / "code.py").write_text("2\n")
    assert commit() == head[:12] + "+"


def test_commit_of_an_archive__is_empty(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    assert provenance._commit.__wrapped__() == ""
