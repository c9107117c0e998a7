"""The page of answers against its inputs."""

import runpy
import tomllib

from commands import ROOT

ANSWERS = runpy.run_path(str(ROOT / "designs" / "answers.py"))
STATED = ("sentence", "answer", "condition", "study", "claim", "words")


def test_page__is_that_of_its_numbers_and_these_are_of_the_claims_that_the_sentences_name():
    kept = ANSWERS["read"]()
    assert [{name: row[name] for name in STATED} for row in kept] == [*ANSWERS["rows"]()]
    assert ANSWERS["BEGIN"] + ANSWERS["page"](kept) + ANSWERS["END"] in (ROOT / "designs" / "README.md").read_text()
    assert 11 <= len({row["sentence"] for row in kept}) <= 20
    for row in kept:
        claims = tomllib.loads((ROOT / "designs" / row["study"] / "design.toml").read_text())["claims"]
        assert row["verdict"] in (claims[row["claim"]].get("expected", "supported"), "not run"), row["claim"]
        assert not (row["error"] and claims[row["claim"]].get("these_draws")), row["claim"]


def test_number__has_two_digits_of_its_error():
    assert ANSWERS["number"]("0.123456", "0.00789") == "0.1235 ± 0.0079"
    assert ANSWERS["number"]("123.4", "15") == "123 ± 15" and ANSWERS["number"]("4e-16", "1e-17") == "4e-16"
