"""The package as others get it: built from its source distribution, installed alone, and run from an empty folder."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_flagship__runs_from_an_empty_environment(tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The dependencies are those of here, which take minutes to install; what is editable here is not seen from there.
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    empty = tmp_path / "empty"
    empty.mkdir()
    simstudy = place / "bin" / "simstudy"
    shipped = run(simstudy, "list", cwd=empty)
    names = [path.parent.name for path in (ROOT / "designs").glob("*/design.toml")]
    assert all(name in shipped for name in names)
    checked = run(simstudy, "check", *names, cwd=empty).splitlines()
    assert len(checked) >= len(names) and all(Path(line.partition(": ")[0]).is_relative_to(purelib) for line in checked)
    shown = run(simstudy, "run", "principal-angles", cwd=empty)
    n_claims = len(tomllib.loads((ROOT / "designs" / "principal-angles" / "design.toml").read_text())["claims"])
    assert f"{n_claims} claims" in shown and "; all as expected" in shown
    results = empty / "outputs" / "principal-angles" / "quick"
    record = json.loads((results / "provenance.json").read_text())
    assert (results / record["design_file"]).resolve().is_relative_to(purelib)
