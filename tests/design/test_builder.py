"""Designs from Python: the same study as its file."""

import inspect
import json

import numpy as np
import pytest
from builders import refuses, write_design

from simstudy import Study, check
from simstudy.design.document import Design, Grid
from simstudy.design.load import load_design
from simstudy.design.settings.cell import TABLES


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
               direction="decreasing", expected="undecided")
        .figure("mse", title="Error against angle", grid="angles", x="angle", y="mse", hue="bandwidth")
        .profile("full", precision={"max_replicates": 1024})
    )  # fmt: skip


def stated(design: Design) -> tuple:
    """What a design states, whatever its text: of its cells the labels as well, which stand apart."""
    return design.model_dump(exclude={"text", "path"}), [planned.cell.coordinates for planned in design.cells]


def test_study__is_that_of_its_file_and_of_its_json(tmp_path):
    of_file = {profile: stated(design) for profile, design in check(write_design(tmp_path)).items()}
    text = load_design(tiny()).text
    for each in (tiny(), Study.of(write_design(tmp_path, text))):
        assert {profile: stated(design) for profile, design in check(each).items()} == of_file
    assert list(json.loads(text)["grids"]["angles"]["factors"]) == ["angle", "bandwidth"]  # the last one runs fastest


@pytest.mark.parametrize(
    ("design", "expected"),
    [
        ({}, r"design: profiles = 'quick': no such profile; the design has: none; add \[profiles.quick\]"),
        ({"study": {"name": "\ud800"}}, "surrogates not allowed"),
        (tiny().grid("more", {"angle": {1}}), "1} is of type set; give text, numbers, lists or tables"),
        (tiny().data(n_keyz=None), 'tiny: data.n_keyz: unknown key; did you mean "n_keys"'),
        (tiny().data(n_keys=-1), "tiny: data.n_keys = -1: Input should be greater than or equal to 1"),
        (3, "a design of type int; give the path of a file, the name of a shipped design, or a Study"),
        ("principal-angels", 'neither a file nor the name of a design; did you mean "principal-angles"?'),
    ],
)
def test_what_is_no_design__is_refused_in_one_line(design, expected):
    refuses(expected, check, design)


def test_methods__have_the_signature_of_their_records():
    for table, record in TABLES.items():
        method = getattr(Study, table)
        assert list(inspect.signature(method).parameters) == ["self", *record.model_fields]
        assert all(name in inspect.getdoc(method) for name in record.model_fields)


def test_range__is_the_list_that_python_makes_of_it():
    given = {"a": {"range": [0, 3]}, "b": {"range": [3, 0, -2]}, "c": {"range": [5, 12, 3]}}
    assert Grid(factors=given).factors == {"a": [0, 1, 2], "b": [3, 1], "c": [5, 8, 11]}
