"""``simstudy judge``: exit codes, what is printed and written."""

import io
import json
import re
import shutil

import pandas as pd
import pytest
from commands import ROOT
from pages import blocks, lacking

PAGE = "simstudy/docs/your-numbers.md"


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "designs" / "examples" / "numbers", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_example__comes_out_as_expected_its_page_draws_each_claim_and_its_json_has_documented_names(here, in_process):
    judged = in_process("judge", "answers.csv", "claims.toml", "--page", "answers.html")
    assert judged.returncode == 0 and "2 claims: 1 supported, 0 contradicted, 1 undecided" in judged.stdout
    found = json.loads(in_process("judge", "answers.csv", "claims.toml", "--json", "--page", "a.html").stdout)
    assert found.keys() == {"units", "units_left_out", "claims"} and found["units"] == 72
    first, second = found["claims"]
    assert first["claimed_upper"] is None and first["further_units"] == 0 < second["further_units"]
    assert not lacking(PAGE, *(f"`{name}`" for name in found))
    (here / "claims.toml").write_text((here / "claims.toml").read_text().replace('expected = "undecided"', ""))
    assert in_process("judge", "answers.csv", "claims.toml").returncode == 5
    assert re.search(r"better-by-half: about \d+ units more would probably decide", judged.stdout)
    page = (here / "answers.html").read_text()
    assert page.count('<details class="claim') == 2 and page.count('<svg class="picture"') == 2
    assert not re.search("before the run", page.split("<script>")[0].split("</style>")[-1])


def test_options__look_once_compare_all_pairs_and_name_a_page(here, in_process):
    judged = in_process("judge", "answers.csv", "claims.toml", "--looks", "one")
    assert "at one look" in judged.stdout and "Verdicts hold at one look" in " ".join(judged.stdout.split())
    pairs = in_process("judge", "answers.csv", "--unit", "question", "--looks", "one")
    assert pairs.returncode == 0 and "; 1 pair, 2 sets. " in pairs.stdout and len(pairs.stdout.splitlines()) == 4
    (here / "one.csv").write_text("question,near,dummy\n1,2,1\n")  # of one unit no error is known
    for file, known in (("answers.csv", True), ("one.csv", False)):
        found = json.loads(in_process("judge", file, "--unit", "question", "--json").stdout)
        assert [(each["condition"], each["error"] is not None) for each in found] == [("near", known), ("dummy", known)]
    assert "needs claims" in in_process("judge", "answers.csv", "--page", "a.html").stderr
    for name in ("answers.csv", "claims.toml"):  # which a page does not replace
        before = (here / name).read_bytes()
        refused = in_process("judge", "answers.csv", "claims.toml", "--page", name)
        assert refused.returncode == 2 and "must end in .html" in refused.stderr
        assert (here / name).read_bytes() == before


def test_columns__may_be_options(here, in_process):
    rows = [line.split(",") for line in (here / "answers.csv").read_text().split()[1:]]
    long = [f"{q},{m},{x}" for q, *pair in rows for m, x in zip(("near", "dummy"), pair, strict=True)]
    (here / "long.csv").write_text("\n".join(["q,condition,right", *long, "900,near,1"]))
    arguments = ["judge", "long.csv", "claims.toml", "--unit", "q", "--value", "right"]
    assert "units lack one" in in_process(*arguments).stderr
    judged = in_process(*arguments, "--drop")
    said = "1 unit left out of comparisons for lack of a number (1 under condition = dummy)"
    assert judged.returncode == 0 and f"72 units, 2 conditions (near, dummy), {said}" in judged.stdout


@pytest.mark.parametrize("levels, where", [
    ("10,20", "20"), ("0.10,0.20", "0.2"), ("1.1,1.10", '"1.10"'), ("1e5,100000", '"100000"'), ("007,011", '"011"'),
])  # fmt: skip
@pytest.mark.parametrize("long", [False, True])
def test_levels_in_a_file__are_numbers_unless_they_are_written_as_no_number_is(here, in_process, levels, where, long):
    text = "\n".join([f"task,{levels}", *[f"{k},{k % 3},{3 + k % 5}" for k in range(200)]])
    if long:
        text = pd.read_csv(io.StringIO(text)).melt("task", var_name="n", value_name="score").to_csv(index=False)
    (here / "numbers.csv").write_text(text)
    name = "n" if long else "condition"
    claim = f'kind = "larger_than"\nstatement = "s"\nvalue = 0.5\nwhere = {{ {name} = {where} }}\n'
    (here / "one.toml").write_text(f"[claims.one]\n{claim}")
    options = ["--value", "score"] * long
    assert in_process("judge", "numbers.csv", "one.toml", "--unit", "task", *options).returncode == 0


AS_CSV = "UTF-8 with a header, commas between columns"


@pytest.mark.parametrize("text, said", [
    ("question,near,near\n1,2,3\n", "two columns 'near'; give each its own name"),
    ("near,dummy\n1,2\n", "unit = 'question': no column of the numbers"),
    ("question,near,dummy\n1,2,\n2,1,1\n", "unit 1, condition = dummy: no number, and 1 of 2 units lack one"),
    ("", AS_CSV),
    ("a,b\n1,2\n1,2,3\n", AS_CSV),
    ("question,near,dummy\nu,1,2,3\nv,1,2,3\n", AS_CSV),
    ("\ufeffa;b\r\n0,5;1\r\n", AS_CSV),
    ("a\tb\n1\t2\n", AS_CSV),
    ("\udcff\udcfea,b\n", AS_CSV),
])  # fmt: skip
def test_files_that_are_no_table__are_refused_in_one_line_with_what_to_do(here, in_process, text, said):
    (here / "answers.csv").write_bytes(text.encode(errors="surrogateescape"))
    refused = in_process("judge", "answers.csv", "claims.toml")
    assert refused.returncode == 2 and refused.stderr.startswith("error: answers.csv: ") and said in refused.stderr
    assert refused.stderr.count("\n") == 1 and "\\n" not in refused.stderr


@pytest.mark.parametrize("block", blocks("python", PAGE))
def test_files_of_other_tools__are_read_as_the_page_says(here, capsys, block):
    exec(block, {})
    assert "1 claim: 1 supported" in capsys.readouterr().out
