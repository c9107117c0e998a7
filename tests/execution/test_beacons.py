"""Beacons that a seal promises, and the register of all claims that were ever sealed."""

from multiprocessing.pool import ThreadPool

import pytest
from builders import edited

from simstudy.errors import UserError
from simstudy.execution.seal import (
    OWN_WORD,
    REGISTER_FILE,
    count_confirmation,
    described,
    note,
    read_register,
    require_fit,
    require_promise,
    revised,
)

BLOCK = "0" * 19 + "b" * 45


@pytest.mark.parametrize("text", ["drand 4242424", "nist 2027-01-31T12:00Z", "bitcoin 2027-01-31T12:00Z", OWN_WORD])
def test_promise__is_one_of_a_public_beacon_or_the_own_word(text):
    assert require_promise(text) == text


@pytest.mark.parametrize("text", ["", "drand", "drand soon", "bitcoin tomorrow", "hello", "drand 0", "own words"])
def test_promise_of_nothing__is_refused(text):
    with pytest.raises(UserError, match="is not a known beacon; give a round, drand 4242424"):
        require_promise(text)


@pytest.mark.parametrize(
    ("promise", "fits", "not_so"),
    [
        ("drand 5", "a" * 64, "a" * 40),
        ("nist 2027-01-31T12:00Z", "A" * 128, "A" * 64),
        ("bitcoin 2027-01-31T12:00Z", BLOCK, "a" * 64),  # no work was done for it
    ],
)
def test_text_of_another_form__is_not_the_beacon_promised(promise, fits, not_so):
    require_fit(promise, fits)
    with pytest.raises(UserError, match=f"the seal promises {promise}, a text of"):
        require_fit(promise, not_so)
    assert "not checked here" in described(promise) and promise in described(promise)


def test_own_word__takes_any_text_and_is_called_so():
    require_fit(OWN_WORD, "the hash of my last commit")
    assert described(OWN_WORD).startswith("own word: the seal names no public beacon")


def test_register__keeps_what_is_withdrawn_and_tells_words_from_claims(tmp_path):
    def claim(statement="It falls.", margin=0.1):
        return {"statement": statement, "margin": margin}

    rows, seals = {}, [
        {"kept": claim(), "worded": claim(), "moved": claim(), "gone": claim()},
        {"kept": claim(), "worded": claim("It sinks."), "moved": claim(margin=0.2), "new": claim()},
        {"kept": claim(), "worded": claim("It sinks."), "moved": claim("It sinks.", 0.2), "gone": claim()},
    ]  # fmt: skip
    before = {}
    for day, now in enumerate(seals[:2], start=1):
        note(rows, "tiny.quick", before, now, f"2026-01-0{day}", "a reason")
        before = now
    found = {name: row["state"] for (_, name), row in rows.items()}
    assert found == {"kept": "stands", "worded": "reworded", "moved": "changed", "gone": "withdrawn", "new": "stands"}
    assert rows["tiny.quick", "gone"]["why"] == "a reason" and rows["tiny.quick", "gone"]["statement"] == "It falls."
    note(rows, "tiny.quick", before, seals[2], "2026-01-03", "")
    states = {name: row["state"] for (_, name), row in rows.items()}
    assert (states["gone"], states["moved"], states["new"]) == ("changed", "changed", "withdrawn")
    place = tmp_path / "sealed" / "tiny.quick.json"
    with revised(place) as kept:
        kept |= rows
    assert read_register(place.parent / REGISTER_FILE) == rows


def test_confirmations_that_end_together__are_all_counted(tmp_path):
    """Each read the register before another had written it: of counts in the same moment the last one stayed."""
    place = tmp_path / "sealed" / "tiny.quick.json"
    with revised(place) as rows:
        note(rows, "tiny.quick", {}, {"flat": {"statement": "A claim."}}, "2026-01-01", "")
    with ThreadPool(4) as pool:
        pool.map(lambda _: count_confirmation(place, {"flat": "supported"}), range(16))
    assert read_register(place.parent / REGISTER_FILE)["tiny.quick", "flat"]["supported"] == "16"


@pytest.mark.parametrize(
    ("old", "new"), [("supported,contra", "contra"), ("0,0,0", "0,0"), ("0,0,0", "0,0,x"), ("A claim", "\udcff")]
)
def test_register_that_is_damaged__is_told_in_one_line(tmp_path, old, new):
    place = tmp_path / "sealed" / "tiny.quick.json"
    with revised(place) as rows:
        note(rows, "tiny.quick", {}, {"flat": {"statement": "A claim."}}, "2026-01-01", "")
    path = place.parent / REGISTER_FILE
    path.write_text(edited(path.read_text(), old, new), errors="surrogateescape")
    with pytest.raises(UserError, match=r"claims\.csv: not a register of claims; take back"):
        read_register(path)
