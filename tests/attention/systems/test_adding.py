"""A worked example of adding a system: two files and a formula in a copy of the package, and a study measures it."""

import os
import shutil
import subprocess
import sys

import simstudy
from simstudy.execution.provenance import PACKAGE

SETTINGS = '''
"""Random walks: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.tables import Instance
from simstudy.design.settings.records import Count, Impossibility, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads


class RandomWalkInstance(Instance):
    """A walk of n_keys steps in n_features dimensions."""

    kind: Literal["random_walk"]
    stride: Count = Field(1, description="steps between two looks, a divisor of n_keys")

    uses: ClassVar[tuple[str, ...]] = ("n_keys", "n_features")
    quantities: ClassVar[dict[str, Quantity]] = {
        "walk_length": Quantity("squared distance of the last look from the start, for each step", "|x_n|^2 / n"),
    }
    words: ClassVar[dict[str, Setting]] = {"stride": Setting("steps between looks", "s")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """The last step is looked at."""
        if data.n_keys % self.stride:
            yield "instance", f"stride = {self.stride} must divide n_keys = {data.n_keys}"
'''

MEASURED = '''
"""Random walks."""

from simstudy.attention.members import Rows, quantities
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.random_walk import RandomWalkInstance


@quantities.register
def walk(instance: RandomWalkInstance, cell: Cell, shared: SharedData) -> Rows:
    """Length of a walk at its last look."""
    steps = shared.normals(cell.data.n_keys, cell.data.n_features)
    looks = steps.cumsum(axis=2)[:, :, instance.stride - 1 :: instance.stride]
    return zip((looks[:, :, -1] ** 2).sum(axis=1) / cell.data.n_keys, strict=True)
'''

THEORY = '''
from simstudy.design.settings.systems.random_walk import RandomWalkInstance


@instance_numbers.register
def random_walk(instance: RandomWalkInstance, cell: Cell) -> dict[str, float]:
    """Squared length of n steps of d standard normals: n·d."""
    return {"walk_length": float(cell.data.n_features)}
'''

ADDED = {"design/settings": SETTINGS, "attention": MEASURED}

DESIGN = """
[study]
name = "walks"
title = "How far does a random walk go?"
aim = "To show how a system is added."

[data]
n_keys = 12

[simulation]
batch_size = 64

[system]
instance = { kind = "random_walk" }

[precision]
relative_mcse = { walk_length = 0.02 }

[grids.walks]
exact = true
[grids.walks.factors]
n_features = [1, 4]
"instance.stride" = [1, 3]

[claims.length]
statement = "The squared length of a walk is the number of its steps times their dimension."
kind = "agrees_with_theory"
grid = "walks"
measure = "walk_length"
source = "exact"
margin = 0.1

[figures.length]
title = "Length against dimension"
grid = "walks"
x = "n_features"
y = "walk_length"
hue = "instance.stride"

[profiles.quick]
"""

# In one process, as it takes long to import everything.
COMMANDS = """
from simstudy.__main__ import command
from simstudy.execution import provenance
from simstudy.report import page
page.draw_z_scores = lambda results: None  # it takes longest
assert command(["run", "walks.toml", "--executor", "serial"]) == 0
assert command(["check", "refused.toml"]) == 2
print(provenance.PACKAGE.parent, provenance.engine())
"""


def test_system__is_added_by_one_file_for_each_room_and_a_formula(tmp_path):
    package = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, package)  # with what was compiled of it
    for room, text in ADDED.items():
        path = package / room / "systems" / "random_walk.py"
        assert not path.exists() and path.parent.is_dir()
        path.write_text(text, encoding="utf-8")
    formulas = package / "theory" / "instances.py"
    formulas.write_text(formulas.read_text(encoding="utf-8") + THEORY, encoding="utf-8")

    (tmp_path / "walks.toml").write_text(DESIGN, encoding="utf-8")
    (tmp_path / "refused.toml").write_text(DESIGN.replace("[1, 3]", "[1, 5]"), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = tmp_path / "outputs" / "walks" / "quick"
    assert "supported" in (folder / "verdicts.csv").read_text(encoding="utf-8")
    assert "steps between looks" in (folder / "report.html").read_text(encoding="utf-8")
    assert "stride = 5 must divide n_keys = 12" in ended.stderr
    # What was computed without the system stays: no source that other cells share has changed.
    assert ended.stdout.split()[-2:] == [str(tmp_path), simstudy.execution.provenance.engine()]
