"""Seals: what voids one and what does not, new randomness in a confirmation, and the two commands."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import DESIGN, edited, write_design

from simstudy.__main__ import command
from simstudy.data import addresses
from simstudy.design.document import Confirmation, confirmatory
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import provenance
from simstudy.execution import seal as sealing
from simstudy.execution.seal import read_seal, require_unbroken, seal_of
from simstudy.execution.store import store_of
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured

CLAIMS = """
[claims.small]
statement = "The error is small."
origin = "negative control"
kind = "equals"
grid = "angles"
measure = "mse"
where = { angle = 45, bandwidth = 0.5 }
value = 0.0
margin = 0.5

[figures.mse]"""
# Seeds follow from the code, too, so both claims are such that any seed supports them.
SEALED = edited(edited(DESIGN, "\n[figures.mse]", CLAIMS), "min_replicates = 64", "min_replicates = 512")
SEALED = edited(SEALED, 'x = "angle"\ndirection', 'x = "bandwidth"\ndirection')
SEALED = edited(SEALED, 'expected = "inconclusive"', 'expected = "supported"')
PLAIN = re.sub(r"\[figures\..*?(?=\n\[profiles.quick\])", "", SEALED, flags=re.DOTALL)  # drawing takes long
BEACON = "block 0000000000000000000abcdef"
CONFIRMATION = Confirmation(seal="0" * 64, beacon=BEACON)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the design, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return write_design(tmp_path, PLAIN)


def simstudy(*arguments: str) -> int:
    return command([*arguments, *(["--executor", "serial"] if arguments[0] in ("run", "confirm") else [])])


def error_of(capsys) -> str:
    """What was said of a refusal: one line, and short."""
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 700 and said[:-1].isprintable()
    return said


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("margin = 0.5", "margin = 0.51", "claims.small.margin was sealed as 0.5 and is 0.51"),
        ('"The error is small."', '"The error is tiny."', "claims.small.statement was sealed as"),
        ('expected = "supported"', 'expected = "contradicted"', 'claims.mse-falls.expected was sealed as "supported"'),
        ("angle = 45, bandwidth = 0.5", "angle = 45, bandwidth = 1.0", "claims.small.where.bandwidth was sealed"),
        ("[claims.small]", "[claims.tiny]", "claims.small was removed"),
        ("n_keys = 40", "n_keys = 41", "grids.angles.settings was sealed"),
        ("angle = [0, 45, 90]", "angle = [0, 45, 60, 90]", "grids.angles.cells was sealed as 6 and is 8"),
        ("max_replicates = 512", "max_replicates = 544", "grids.angles.settings was sealed"),
        ("seed = 7", "seed = 8", "grids.angles.settings was sealed"),
        ('aim = "To test."', 'aim = "To confirm."', 'aim was sealed as "To test." and is "To confirm."'),
        ("n_keys = 40", "# a comment\nn_keys   =   40", ""),
        ("n_keys = 40\nn_features = 6", "n_features = 6\nn_keys = 40", ""),
        ("angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", "bandwidth = [0.5, 1.0]\nangle = [0, 45.0, 90]", ""),
        ('title = "Error against angle"', 'title = "Another title"', ""),
        ('title = "A tiny study"', 'title = "Another title"', ""),
        ("margin = 0.5", 'margin = 5e-1\nexpected = "supported"', ""),
    ],
)
def test_seal__is_voided_by_a_change_of_what_is_judged_and_of_nothing_else(tmp_path, old, new, place):
    seal = seal_of(load_design(write_design(tmp_path, SEALED)))
    changed = load_design(write_design(tmp_path, edited(SEALED, old, new)))
    assert (seal_of(changed).digest == seal.digest) == (not place)
    with pytest.raises(UserError, match=re.escape(f"void, as design.{place}")) if place else nullcontext():
        require_unbroken(seal, changed, Path("x.json"))


def test_seal__is_voided_by_the_contents_of_a_head_file(tmp_path):
    text = edited(SEALED, 'arrangement = "rotated"', 'arrangement = "file"\nfile = "heads.npy"')
    text = edited(text, "angle = [0, 45, 90]\n", "")
    text = edited(edited(text, 'x = "angle"', 'x = "bandwidth"'), 'hue = "bandwidth"\n', "").replace("angle = 45, ", "")
    heads = np.stack([np.eye(6, 2), np.eye(6, 2, -2)])
    np.save(tmp_path / "heads.npy", heads)
    seal = seal_of(load_design(write_design(tmp_path, text)))
    np.save(tmp_path / "heads.npy", heads[::-1])
    with pytest.raises(UserError, match=r"void, as design.grids.angles.settings"):
        require_unbroken(seal, load_design(write_design(tmp_path, text)), Path("x.json"))


def test_seal__is_voided_by_other_code(tmp_path, monkeypatch):
    design = load_design(write_design(tmp_path, SEALED))
    seal = seal_of(design)
    folder = tmp_path / "package" / "verdicts"
    folder.mkdir(parents=True)
    monkeypatch.setattr(provenance, "PACKAGE", folder.parent)
    monkeypatch.setattr(sealing, "JUDGING", ("verdicts",))
    digests = []
    for text in ("x = 1", "x = 1  # the same", "x = 2"):
        (folder / f"judge{len(digests)}.py").write_text(text)
        (folder / f"judge{len(digests)}.py").replace(folder / "judge.py")
        provenance.code_of.cache_clear()
        digests.append(sealing.judging_code(design))
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(UserError, match="void, as code was sealed as"):
        require_unbroken(seal, design, Path("x.json"))


@pytest.mark.parametrize(("study", "part"), [("real-heads", "transformers"), ("hierarchical", "hierarchy.py")])
def test_seal__covers_what_its_own_systems_rest_on(study, part, monkeypatch):
    own, other = load_design(study), load_design("kq-svd")
    before = [sealing.judging_code(design) for design in (own, other)]
    real = provenance.code_of
    monkeypatch.setattr(provenance, "code_of", lambda path: "changed" if part in path.parts else real(path))
    assert sealing.judging_code(own) != before[0] and sealing.judging_code(other) == before[1]


EVERYTHING = """
[study]
name = "everything"
title = "Every kind of random number"
aim = "To test."
[data]
n_keys = 12
n_features = 4
[heads]
n_heads = 2
head_dim = 2
arrangement = "haar"
[estimator]
bandwidth = 0.8
[queries]
queries = { kind = "gaussian", count = 3 }
[simulation]
seed = 7
batch_size = 16
noise_treatment = "drawn"
[grids.draws.factors]
head_seed = [0, 1]
arrangement = ["haar", "haar_redrawn"]
query_projections = ["same", "haar"]
[grids.scattered]
settings = { arrangement = "scattered", noise = { kind = "student_t", df = 5 } }
factors.spread = [0.3, 1.0]
[grids.keys.factors]
key_distribution = [{ kind = "student_t", df = 5 }, "mixture", { kind = "gaussian", structure = "equicorrelated" }]
[grids.vectors]
settings = { arrangement = "aligned", value_projections = { kind = "random", n_components = 3, value_dim = 2 } }
[grids.trees]
settings = { arrangement = "aligned", learner = "random_forest" }
[grids.ants]
settings = { arrangement = "aligned", learner = "ant_colony", queries = "origin" }
[grids.rows]
settings = { arrangement = "aligned", population = ["rows"], n_features = 5 }
factors.key_distribution = [{ kind = "file", path = "sklearn:iris" }]
[grids.instance]
settings = { instance = { kind = "hopfield_noise", layers = 2 }, n_keys = 8 }
[grids.seeds.factors]
seed = [7, 8]
noise_sd = [0.5, 1.0]
[claims.by-seed]
statement = "A claim that selects by seed."
kind = "larger_than"
grid = "seeds"
measure = "mse"
where = { seed = 7 }
stands = { seed = 7 }
versus = { noise_sd = 0.5 }
[profiles.quick]
"""


def streams_of(design, monkeypatch) -> tuple[set, list]:
    """Streams and roles of all random numbers of a design, and cell by cell those of each."""
    drawn: set = set()
    filled = addresses._filled

    def record(transform, stream, role, *where):
        drawn.add((stream[:16], role))
        return filled(transform, stream, role, *where)

    each = []
    with monkeypatch.context() as patched:
        patched.setattr(addresses, "_filled", record)
        for planned in design.cells:
            drawn.clear()
            measured(planned.cell, simulate_batch([planned.cell], 0))
            each.append(frozenset(drawn))
    return set().union(*each), each


@pytest.fixture
def everything(tmp_path):
    return load_design(write_design(tmp_path, EVERYTHING))


def test_confirmation__draws_no_random_number_of_the_pilot(everything, monkeypatch):
    for planned in everything.cells:
        assert planned.cell.data_id  # cells remember it: a copy must not
    confirmed = confirmatory(everything, CONFIRMATION)
    pilot, pilot_cells = streams_of(everything, monkeypatch)
    new, new_cells = streams_of(confirmed, monkeypatch)
    assert {role for _, role in pilot} == set(addresses.Role), "a kind of random number that this design does not draw"
    assert not {stream for stream, _ in pilot} & {stream for stream, _ in new}
    # Whoever shared random numbers still does, and nobody else: pairing is as it was.
    shared = [[bool(a & b) for b in pilot_cells] for a in pilot_cells]
    assert [[bool(a & b) for b in new_cells] for a in new_cells] == shared
    assert len(pilot) == len(new)


def test_confirmation__keeps_everything_but_seeds(everything):
    confirmed = confirmatory(everything, CONFIRMATION)
    seeds = {seed: CONFIRMATION.seed(seed) for seed in (7, 8)}
    assert [c.cell.simulation.seed for c in confirmed.cells] == [
        seeds[c.cell.simulation.seed] for c in everything.cells
    ]
    assert confirmed.claims["by-seed"].where == confirmed.claims["by-seed"].stands == {"seed": seeds[7]}
    assert confirmed.claims["by-seed"].versus == {"noise_sd": 0.5}
    for cells in zip(confirmed.cells, everything.cells, strict=True):
        new, old = (each.cell.model_dump(exclude={"simulation": {"seed"}}) for each in cells)
        assert new == old
    assert store_of(confirmed, "out").folder == Path("out/everything/quick/confirmed") / CONFIRMATION.name


def test_seed__follows_from_seal_beacon_and_seed_alone():
    assert CONFIRMATION.seed(7) == CONFIRMATION.seed(7) == 8003905418429901505
    others = [
        CONFIRMATION.seed(8),
        CONFIRMATION.model_copy(update={"beacon": BEACON + "0"}).seed(7),
        CONFIRMATION.model_copy(update={"seal": "1" * 64}).seed(7),
    ]
    assert len({CONFIRMATION.seed(7), *others}) == 4
    assert all(0 <= seed < 2**63 for seed in others)


@pytest.mark.usefixtures("undrawn")
def test_freeze_and_confirm__show_pilot_and_confirmed_side_by_side(here, capsys):
    assert simstudy("run", "design.toml") == 0
    assert "a pilot; not confirmed" in capsys.readouterr().out
    pilot = here.parent / "outputs" / "tiny" / "quick"
    assert "Not confirmed" in (pilot / "report.html").read_text()
    assert simstudy("freeze", "design.toml") == 0
    sealed = here.parent / "sealed"
    seal, prereg = read_seal(sealed / "tiny.quick.json"), (sealed / "tiny.quick.md").read_text()
    told = (seal.digest, "The error is small.", "negative control", "margin = 0.5", "512 to 512 replicates", PLAIN)
    assert all(each in prereg for each in told)
    assert simstudy("freeze", "design.toml") == 0
    assert re.search("before you choose the text.*nothing has changed since", capsys.readouterr().out, re.DOTALL)
    assert simstudy("confirm", "design.toml", "--beacon", BEACON) == 0
    assert "side by side" in capsys.readouterr().out
    for _ in range(2):
        assert simstudy("confirm", "design.toml", "--beacon", BEACON + "1", "--quiet") == 0
        assert capsys.readouterr() == ("", "")
    assert pd.read_csv(sealed / "claims.csv").supported.tolist() == [2, 2]
    table = pd.read_csv(pilot / "verdicts.csv")
    assert table.confirmed.tolist() == ["supported"] * 2
    assert [text.count("supported") for text in table.confirmations] == [2, 2]
    page = (pilot / "report.html").read_text()
    assert page.count(BEACON) == 2 and "Not confirmed" not in page
    assert "2 begun, 2 finished, 0 void" in page and page.count("own word: the seal names no public beacon") == 2
    folders = sorted((pilot / "confirmed").iterdir())
    estimates = {pd.read_csv(folder / "verdicts.csv").verdict_estimate[1] for folder in (pilot, *folders)}
    assert len(folders) == 2 and len(estimates) == 3
    assert all("A <b>confirmation</b>" in (folder / "report.html").read_text() for folder in folders)
    # One that was begun and not finished is listed, and so is one whose claims have changed since.
    (folders[0] / "results.nc").unlink()
    assert simstudy("report", "design.toml") == 0
    assert "not finished" in (pilot / "report.html").read_text()
    here.write_text(edited(PLAIN, "margin = 0.5", "margin = 0.6"))
    assert simstudy("run", "design.toml") == 0
    page = (pilot / "report.html").read_text()
    assert "void, as design.claims.small.margin was sealed as 0.5 and is 0.6" in page
    assert pd.read_csv(pilot / "verdicts.csv").confirmed.tolist() == ["not confirmed"] * 2
    assert simstudy("verify", str(pilot)) == 0


def test_confirm__is_refused_without_a_seal_or_with_a_broken_one(here, capsys):
    seal = here.parent / "sealed" / "tiny.quick.json"
    asked = ("confirm", "design.toml", "--beacon", BEACON)
    assert simstudy(*asked) == 2
    assert "no seal; freeze the design first" in error_of(capsys)
    simstudy("freeze", "design.toml")
    capsys.readouterr()
    whole = seal.read_text()
    for content, message in (
        (whole.replace('"margin": 0.5', '"margin": 0.7'), "changed since it was written"),
        ("{", "not a seal"),
        ('{"digest": "\x1b[2J"}', "not a seal"),
        ("[" * 100_000, "not a seal"),
        ('{"frozen": ' + "9" * 100_000 + "}", "not a seal"),
        ("x" * (sealing.MAX_SEAL_BYTES + 1), "longer than"),
        (whole.replace('"frozen"', '"thawed"'), "not a seal"),
    ):
        assert content != whole
        seal.write_text(content)
        assert simstudy(*asked) == 2
        assert message in error_of(capsys)
    seal.write_text(whole)
    here.write_text(edited(PLAIN, "margin = 0.5", "margin = 0.6"))
    assert simstudy(*asked) == 2
    assert "void, as design.claims.small.margin" in error_of(capsys)
    assert not (here.parent / "outputs").exists()


def test_seal_that_claims_what_a_terminal_obeys__is_one_line(here, capsys):
    simstudy("freeze", "design.toml")
    path = here.parent / "sealed" / "tiny.quick.json"
    content = json.loads(path.read_text())
    content["sealed"]["design"]["claims"]["\x1b[2J\n" * 100] = {"\n": "\r" * 5000}
    content["digest"] = sealing.digest_of(content["sealed"])
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert simstudy("confirm", "design.toml", "--beacon", BEACON) == 2
    assert "was removed" in error_of(capsys)


@pytest.mark.parametrize(
    ("beacon", "message"),
    [
        ("", "has 0 characters; give a text of 16 to 1000"),
        ("x" * 100_000, "has 100000 characters"),
        ("0123456789\x1b[2J0123456789", "U+001B is one"),
        ("DIGEST", "occurs in the seal, so it existed before"),
    ],
)
def test_beacon_that_proves_nothing__is_refused(here, capsys, beacon, message):
    simstudy("freeze", "design.toml")
    if beacon == "DIGEST":
        beacon = read_seal(here.parent / "sealed" / "tiny.quick.json").digest
    capsys.readouterr()
    assert simstudy("confirm", "design.toml", "--beacon", beacon) == 2
    assert message in error_of(capsys)
    assert not (here.parent / "outputs").exists()


def test_beacon_that_is_promised__counts_and_no_other(here, capsys):
    assert simstudy("freeze", "design.toml", "--beacon", "hello") == 2
    assert "is not a known beacon" in error_of(capsys)
    assert simstudy("freeze", "design.toml", "--beacon", "drand 4242424") == 0
    assert "that this is the randomness of that round" in " ".join(capsys.readouterr().out.split())
    assert "drand 4242424" in (here.parent / "sealed" / "tiny.quick.md").read_text()
    assert simstudy("confirm", "design.toml", "--beacon", BEACON) == 2
    assert "the seal promises drand 4242424" in error_of(capsys)
    # Another promise is another seal: none can be chosen after the beacon.
    first = read_seal(here.parent / "sealed" / "tiny.quick.json")
    assert simstudy("freeze", "design.toml") == 0
    assert "named drand 4242424, and now own word" in " ".join(capsys.readouterr().err.split())
    assert read_seal(here.parent / "sealed" / "tiny.quick.json").digest != first.digest


def test_freeze__keeps_a_withdrawn_claim_in_the_register(here, capsys):
    simstudy("freeze", "design.toml")
    here.write_text(re.sub(r"\[claims\.small\].*?(?=\n\[)", "", PLAIN, flags=re.DOTALL))
    assert simstudy("freeze", "design.toml", "--because", "too easy") == 0
    assert "replaced: the seal of" in capsys.readouterr().err
    rows = pd.read_csv(here.parent / "sealed" / "claims.csv").set_index("claim")
    assert rows.state.to_dict() == {"mse-falls": "stands", "small": "withdrawn"}
    assert rows.why["small"] == "too easy" and rows.statement["small"] == "The error is small."


def test_freeze__wants_a_claim(here, capsys):
    here.write_text(re.sub(r"\[claims\..*?(?=\n\[profiles.quick)", "", PLAIN, flags=re.DOTALL))
    assert simstudy("freeze", "design.toml") == 2
    assert "makes no claim" in error_of(capsys)
    assert not (here.parent / "sealed").exists()
