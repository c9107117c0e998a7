"""The wheel: built, unpacked alone, and used outside of the repository by whoever has the dependencies."""

import json
import zipfile
from pathlib import Path

from commands import ROOT, environment, python

# In one process, as each imports for seconds, and the new design with fewer replicates.  The heads of the other one
# are in files.
COMMANDS = """
import sys
from pathlib import Path
for extra in ("dask", "distributed", "cryptography", "dask_jobqueue", "sklearn", "pyarrow", "torch"):
    sys.modules[extra] = None
from simstudy.__main__ import command
from simstudy.design.load import known_designs
print(*known_designs(), sep="\\n")
assert command(["status", "diversity-index", "--json"]) == 0
assert not list(Path().iterdir())
assert command(["init", "my-question"]) == 0
new = Path("my-question/design.toml")
new.write_text(new.read_text().replace("0.02", "0.2").replace("population =", "# population ="))
raise SystemExit(command(["run", "my-question", "--workers", "1"]))
"""


def test_wheel__holds_its_notes_and_shipped_designs_that_are_found_by_name_and_a_new_one_is_written_and_run(tmp_path):
    """Of a source distribution, in a folder that holds what it puts into an environment, and nothing else."""
    built = python("-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installed, here = tmp_path / "installed", tmp_path / "here"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(installed)
    held = {path.name for path in (installed / "simstudy").iterdir()}
    assert {"CITATION.cff", "README.md", "py.typed"} <= held and "docs" not in held
    here.mkdir()
    ended = python("-c", COMMANDS, cwd=here, env=environment(PYTHONPATH=str(installed)))
    assert ended.returncode in (0, 5), ended.stdout + ended.stderr  # verdicts of so few replicates may be others
    shown, _, status = ended.stdout.partition("{")
    designs = {Path(line) for line in shown.splitlines()}
    assert {path.parent.name for path in designs} == {path.parent.name for path in ROOT.glob("designs/*/design.toml")}
    assert {path.parents[1] for path in designs} == {installed / "simstudy" / "designs"}
    cells, _ = json.JSONDecoder().raw_decode("{" + status)
    assert len(cells["cells"]) > 500
    assert (here / "outputs" / "my-question" / "quick" / "report.html").exists()
    assert not (here / ".partial").exists()
