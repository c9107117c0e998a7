"""A sample of the kills and surroundings of `make verify`, and whether the harness would see what it looks for."""

import shutil

import pytest
from builders import edited
from kills import KINDS, SURROUNDINGS, WORK, Aim, Bench, Target, command, inside

TEARING = """
import time
from simstudy.execution.batch_files import Segment
append = Segment.append
def torn(self, records):
    append(self, {batch: record[:100] for batch, record in records.items()})
    time.sleep(60)
Segment.append = torn
"""
FORGETFUL = """
from simstudy.execution.store import Store
Store.stored_batches = lambda *_: frozenset()
"""
# Files of figures are killed and compared as all others; what is drawn in them takes longer than all else.
BLANK_FIGURES = """
from matplotlib.figure import Figure
from simstudy.report import figures
figures.draw = lambda *_: Figure()
figures.draw_claims = figures.draw_z_scores = lambda *_: None
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    half_as_many = edited(WORK, "batch_size = 32", "batch_size = 64")
    return Bench(tmp_path_factory.mktemp("kills"), half_as_many, BLANK_FIGURES)


@pytest.mark.parametrize("kind", ["serial", "results", "merge"])
def test_killed_work__ends_in_the_same_bytes(kind, bench):
    assert KINDS[kind](bench, 1).effective == 1


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [(TEARING, "not that of a calm run"), (FORGETFUL, "lost or computed again")],
    ids=["tears files", "forgets batches"],
)
def test_broken_store__is_seen(broken, complaint, bench, request):
    target = bench.target(request.node.callspec.id)
    with pytest.raises(AssertionError, match=complaint):
        for _ in range(2):
            target.hit(lambda: bench.start(*bench.run(target.name), first=broken), Aim(most=1))


def test_kill_that_hits_no_work__does_not_count(bench, monkeypatch):
    monkeypatch.setattr("kills.TRIES", 2)
    target = bench.copied("idle")
    with pytest.raises(AssertionError, match="idle: no kill in 2 hit work"):
        target.hit(lambda: bench.start("check", bench.design))
    assert target.tried == 2 and target.effective == 0


def test_kill_that_came_too_late__is_repeated_on_a_new_folder(bench, monkeypatch):
    aimed, late = Target._wait, iter([lambda _, process, *__: process.wait()])
    monkeypatch.setattr(Target, "_wait", lambda *given: next(late, aimed)(*given))
    target = bench.target("late")
    target.hit(lambda: bench.start(*bench.run("late")))
    assert target.effective == 1


@pytest.mark.rare
def test_report_where_everything_is_lacking__is_the_same_bytes(tmp_path):
    bench = Bench(tmp_path, WORK)
    target = bench.copied("lacking")
    shutil.rmtree(target.folder / "figures")
    lacking = [name for name, text in SURROUNDINGS.items() if "faketime" not in text]
    done = inside(lacking, command("report", bench.design, "--output", bench.place / "lacking"))
    assert done.returncode == 0
    target.assert_equal()
