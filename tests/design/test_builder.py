"""Designs from Python: the same study as its file, and all mistakes at once."""

import inspect
import tomllib

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, write_design
from commands import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simstudy import Study, check
from simstudy.design.document import Design
from simstudy.design.mistakes import DesignError
from simstudy.design.settings.cell import TABLES
from simstudy.design.written import to_toml
from simstudy.errors import UserError


def tiny() -> Study:
    """The design of the builders, written in Python."""
    return (
        Study("tiny", title="A tiny study", aim="To test.")
        .data(n_keys=np.int64(40), n_features=6, regression={"kind": "ridge"})
        .heads(n_heads=2, head_dim=2, arrangement="rotated")
        .estimator(bandwidth=0.8)
        .simulation(seed=7, batch_size=32)
        .precision(relative_mcse={"mse": 0.05}, min_replicates=64, max_replicates=512)
        .grid("angles", {"angle": range(0, 91, 45), "bandwidth": np.array([0.5, 1.0])})
        .claim("mse-falls", "monotone", statement="The error falls.", grid="angles", measure="mse", x="angle",
               direction="decreasing", expected="inconclusive")
        .figure("mse", title="Error against angle", grid="angles", x="angle", y="mse", hue="bandwidth")
        .profile("full", precision={"max_replicates": 1024})
    )  # fmt: skip


def stated(design: Design) -> tuple:
    """What a design states, whatever its text: of its cells the labels as well, which stand apart."""
    return design.model_dump(exclude={"text", "path"}), [planned.cell.coordinates for planned in design.cells]


def test_study__is_that_of_its_file_and_of_its_toml(tmp_path):
    study, of_file = tiny(), check(write_design(tmp_path))
    again = Study.of(write_design(tmp_path, study.toml()))
    assert again.toml() == study.toml() and of_file.keys() == {"quick", "full"}
    for each in (study, again):
        assert {profile: stated(design) for profile, design in check(each).items()} == {
            profile: stated(design) for profile, design in of_file.items()
        }
    assert list(again["grids"]["angles"]["factors"]) == ["angle", "bandwidth"]  # the last one runs fastest


@pytest.mark.parametrize("path", sorted((ROOT / "designs").glob("*/design.toml")), ids=lambda path: path.parent.name)
def test_shipped_designs__survive_python(path):
    study = Study.of(path.parent.name)
    assert study == tomllib.loads(path.read_text())
    assert tomllib.loads(study.toml()) == study
    assert [*study["grids"].items()] == [*tomllib.loads(study.toml())["grids"].items()]


_LEAVES = st.one_of(
    st.text(max_size=6), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(),
    st.sampled_from(["\x7f", "\0", "a.b", "\r\n", "'''", '"""']),
)  # fmt: skip
_ENTRIES = st.dictionaries(st.text(max_size=4) | st.just("factors"), st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
), max_size=4)  # fmt: skip


# Neither drawing nor the rest may fail because the machine is busy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["study", "data", "grids", "claims", "profiles", "x y"]), _ENTRIES, max_size=3))
def test_any_tables__become_toml_that_parses_to_them(tables):
    text, problems = to_toml(tables)
    assert problems or tomllib.loads(text) == tables


def test_all_mistakes__are_in_one_exception():
    study = tiny().data(n_keys=-1, n_keyz=None).estimator(bandwith=1).grid("more", {"angle": {1, 2}, "noise_sd": []})
    with pytest.raises(DesignError) as refused:
        check(study)
    message = str(refused.value)
    for expected in (
        "tiny: data.n_keyz: of type NoneType, which TOML does not have",
        "tiny: grids.more.factors.angle: of type set",
        "tiny: data.n_keys = -1: must be greater than or equal to 1; give number of training pairs",
        'tiny: estimator.bandwith = 1: unknown key; did you mean "bandwidth"?',
        "tiny: grids.more.factors.noise_sd = []",
    ):
        assert message.count(expected) == 1, message


@pytest.mark.parametrize(
    ("design", "expected"),
    [
        ({}, r"design: profiles = 'quick': no such profile; the design has: none; add \[profiles.quick\]"),
        ({"study": {"name": "\ud800"}}, "not valid|no such profile"),
        (3, "a design of type int; give the path of a file, the name of a shipped design, or a Study"),
        ("principal-angels", 'neither a file nor the name of a design; did you mean "principal-angles"?'),
    ],
)
def test_what_is_no_design__is_refused_in_one_line(design, expected):
    with pytest.raises(UserError, match=expected) as refused:
        check(design)
    assert len(str(refused.value).splitlines()) == 1


def test_methods__have_the_signature_of_their_records():
    for table, record in TABLES.items():
        method = getattr(Study, table)
        assert list(inspect.signature(method).parameters) == ["self", *record.model_fields]
        assert all(name in inspect.getdoc(method) for name in record.model_fields)


@pytest.mark.parametrize("given, levels", [("[0, 3]", [0, 1, 2]), ("[3, 0, -2]", [3, 1]), ("[5, 12, 3]", [5, 8, 11])])
def test_range__is_the_list_that_python_makes_of_it(tmp_path, given, levels):
    text = edited(DESIGN, "angle = [0, 45, 90]", f"angle = {{ range = {given} }}")
    written = edited(DESIGN, "angle = [0, 45, 90]", f"angle = {levels}")
    one, other = (loaded(tmp_path, each) for each in (text, written))
    assert stated(one) == stated(other)


@pytest.mark.parametrize(
    "given", ["[0]", "[0, 1.5]", "[0, 9, 0]", "[0, true]", "3", f"[{-(2**63)}, {2**63 - 1}]", "[0, 2], step = 1"]
)
def test_range_that_is_none__is_refused_with_its_place(tmp_path, given):
    with pytest.raises(DesignError, match=r"grids.angles.factors.angle = .*range.*: must be a"):
        loaded(tmp_path, edited(DESIGN, "angle = [0, 45, 90]", f"angle = {{ range = {given} }}"))
