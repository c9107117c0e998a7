"""Runs with other random numbers, which follow from design, functions and a text."""

import pytest
from builders import DESIGN, edited, write_design
from stored import batches, remove

import simstudy
from simstudy.data import addresses
from simstudy.data.addresses import Role
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured
from simstudy.results import cells_of

EVERYTHING = """
study = { name = "everything", title = "Every kind of random number of heads", aim = "To test." }
data = { n_keys = 12, n_features = 4 }
heads = { n_heads = 2, head_dim = 2, arrangement = "haar" }
estimator = { bandwidth = 0.8 }
queries = { queries = { kind = "gaussian", count = 3 } }
simulation = { seed = 7, batch_size = 16, noise_treatment = "drawn" }
profiles.quick = {}
[grids.draws.factors]
head_seed = [0, 1]
arrangement = ["haar", "haar_redrawn"]
query_projections = ["same", "haar"]
[grids.keys.factors]
key_distribution = [{ kind = "student_t", df = 5 }, "mixture", { kind = "gaussian", structure = "equicorrelated" }]
[grids]
vectors.settings.arrangement = "aligned"
vectors.settings.value_projections = { kind = "random", n_components = 3, value_dim = 2 }
trees.settings = { arrangement = "aligned", learner = "random_forest" }
rows.settings = { arrangement = "aligned", population = ["rows"], n_features = 5 }
rows.factors.key_distribution = [{ kind = "file", path = "sklearn:iris" }]
seeds.factors = { seed = [7, 8], noise_sd = [0.5, 1.0] }
[claims.by-seed]
statement = "A claim that selects by seed."
kind = "larger_than"
grid = "seeds"
measure = "mse"
versus = { noise_sd = 0.5 }
[figures]
by-seed = { title = "By seed", kind = "curve", grid = "seeds", x = "noise_sd", y = "mse" }
"""


def streams_of(design, monkeypatch) -> list[set]:
    """Streams and roles of the random numbers of each cell."""
    drawn: set = set()
    filled = addresses.Drawn.__array__

    def record(numbers, *given, **how):
        *stream, role, _ = map(int, numbers.address)
        drawn.add((tuple(stream), Role(role)))
        return filled(numbers, *given, **how)

    each = []
    with monkeypatch.context() as patched:
        patched.setattr(addresses.Drawn, "__array__", record)
        for planned in design.cells:
            drawn.clear()
            measured(planned.cell, simulate_batch([planned.cell], 0))
            each.append(set(drawn))
    return each


def test_confirmation__draws_no_random_number_of_the_run_and_changes_nothing_else(tmp_path, monkeypatch):
    design = load_design(write_design(tmp_path, EVERYTHING))
    for planned in design.cells:
        assert planned.cell.data_id  # cells remember it: a copy must not
    confirmed = load_design(tmp_path / "design.toml", confirm="a text")
    old, new = (streams_of(each, monkeypatch) for each in (design, confirmed))
    assert {role for cell in old for _, role in cell} == set(Role) - {Role.INSTANCE}
    assert not {stream for cell in old for stream, _ in cell} & {stream for cell in new for stream, _ in cell}
    # Cells that shared random numbers still do, and no others: pairing is as it was.
    assert [[bool(a & b) for b in new] for a in new] == [[bool(a & b) for b in old] for a in old]
    for cells in zip(confirmed.cells, design.cells, strict=True):
        assert len({each.cell.model_dump_json(exclude={"simulation": {"seed"}}) for each in cells}) == 1
    assert max({cell.cell.simulation.seed for cell in confirmed.cells}) < 2**63
    by_seed = edited(EVERYTHING, "versus = { noise_sd", "where = { seed = 7 }\nversus = { noise_sd")
    with pytest.raises(
        UserError, match=r"claims.by-seed.where = \{'seed': 7\}: selects no cell of the grid; it has seed = "
    ):
        load_design(write_design(tmp_path, by_seed), confirm="a text")


def test_confirm__has_its_own_folder_resumes_there_and_leaves_the_run_as_it_was(tmp_path, tiny, in_process):
    path, output = write_design(tmp_path), tiny.copied(tmp_path / "out")
    study = output / "tiny" / "quick"
    before = {each: each.read_bytes() for each in study.rglob("*") if each.is_file()}

    def confirm(text: str):
        ran = in_process("run", path, "--confirm", text, "--output", output, "--executor", "serial")
        assert ran.returncode in (0, 5), ran.stderr
        (digest,) = {each.name for each in (study / "confirmed").iterdir()} & set(ran.stdout.split())
        assert f"confirmed with the text {text!r}: {digest}" in " ".join(ran.stdout.split())
        return study / "confirmed" / digest, cells_of(simstudy.open_results(study / "confirmed" / digest))

    folder, first = confirm("a text")
    assert len(folder.name) == 16 and int(folder.name, 16)
    assert (first.attrs["confirmation_text"], first.attrs["confirmation_digest"]) == ("a text", folder.name)
    assert "Confirmed with the text “a text”" in (folder / "report.html").read_text()
    whole = batches(folder)
    for name in list(whole)[::2]:
        remove(folder, name)
    assert len(batches(folder)) < len(whole)
    again = confirm("a text")
    assert again[0] == folder and again[1].assign_attrs(run="").identical(first.assign_attrs(run=""))
    assert batches(folder) == whole
    path.write_text(edited(DESIGN, "A tiny study", "A changed study"))
    others = [confirm("a text"), confirm("another text")]
    assert len({folder, *(each for each, _ in others)}) == 3
    estimates = {float(each.mse[0, 0]) for each in (tiny.results, first, *(results for _, results in others))}
    assert len(estimates) == 4
    assert before == {each: each.read_bytes() for each in before} and not tiny.results.attrs["confirmation_text"]


@pytest.mark.parametrize("text", ["", " ", "a\x1b[2Jb", "two\nlines"])
def test_text_that_cannot_be_shown__is_refused(tmp_path, in_process, text):
    ran = in_process("run", write_design(tmp_path), "--confirm", text, "--output", tmp_path / "out")
    assert ran.returncode == 2 and ran.stderr.startswith("error: confirm = ") and not (tmp_path / "out").exists()
