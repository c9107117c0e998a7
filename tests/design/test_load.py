"""Design files: the good are loaded, the bad are refused with every mistake named."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from builders import DESIGN, edited, minimal_cell, write_design

from simstudy.design.claims import BaseClaim
from simstudy.design.feasibility import features_needed, impossibilities
from simstudy.design.load import MAX_BYTES, load_design, profiles_of
from simstudy.design.mistakes import DesignError
from simstudy.design.settings import TABLE_OF, TABLES
from simstudy.design.settings.cell import level, selected

DESIGNS = sorted((Path(__file__).parents[2] / "designs").glob("*.toml"))


def mistakes(folder: Path, text: str, profile: str = "quick") -> str:
    with pytest.raises(DesignError) as refused:
        load_design(write_design(folder, text), profile)
    return str(refused.value)


def places(message: str) -> set[str]:
    return {line.split(": ")[1].split(" = ")[0] for line in message.splitlines()}


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_shipped_designs__load_under_every_profile(path):
    assert {"quick", "full"} <= set(profiles_of(path))
    for profile in profiles_of(path):
        design = load_design(path, profile)
        assert design.study.name == path.stem
        assert design.claims and design.figures and design.cells


def test_setting_names__are_unique_over_tables():
    assert len(TABLE_OF) == sum(len(model.model_fields) for model in TABLES.values())


def test_design__is_crossed_with_the_last_factor_fastest(tmp_path):
    design = load_design(write_design(tmp_path))
    levels = [(c.cell.heads.angle, c.cell.bandwidth) for c in design.cells]
    assert levels == [(0, 0.5), (0, 1.0), (45, 0.5), (45, 1.0), (90, 0.5), (90, 1.0)]
    assert isinstance(design.claims["mse-falls"], BaseClaim)
    assert design.text == DESIGN


def test_profile__replaces_entries_and_keeps_the_rest(tmp_path):
    quick, full = (load_design(write_design(tmp_path), profile) for profile in ("quick", "full"))
    assert [quick.cells[0].precision.max_replicates, full.cells[0].precision.max_replicates] == [512, 1024]
    assert quick.cells[0].precision.min_replicates == full.cells[0].precision.min_replicates
    assert "no such profile" in mistakes(tmp_path, DESIGN, "ful")


def test_designs__are_immutable(tmp_path):
    design = load_design(write_design(tmp_path))
    with pytest.raises(ValueError, match="frozen"):
        design.cells[0].cell.data.n_keys = 3


def test_all_mistakes__are_reported_together(tmp_path):
    text = edited(DESIGN, "n_keys = 40", 'n_keys = "many"\nn_kees = 3')
    text = edited(text, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5, -1.0]\nhead_dim = [2, 7]\nn_heads = []")
    text = edited(text, 'direction = "decreasing"', 'direction = "down"')
    text = edited(text, "{ mse = 0.05 }", "{ mze = 0.05 }")
    message = mistakes(tmp_path, text)
    for expected in (
        "data.n_kees = 3: unknown key; did you mean",
        "claims.mse-falls.direction = 'down': must be",
        "grids.angles.factors.n_heads = []",
        "precision.relative_mcse.mze",
        "data.n_keys = 'many': must be a valid integer; give number of training pairs",
        "grids.angles.factors.bandwidth[1] = -1.0: must be greater than or equal to 0.000000001; give a positive",
    ):
        assert expected in message, message
    assert all(line.startswith(str(tmp_path)) for line in message.splitlines())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("n_features = 6", "n_features = 3", "take up 4 features; n_features is 3"),
        ("head_dim = 2", "head_dim = 7", "head_dim = 7: a head of 7 dimensions does not fit"),
        ("bandwidth = 0.8", "bandwidth = inf", "must be a finite number"),
        ("bandwidth = 0.8", "bandwidth = true", "estimator.bandwidth"),
        ("seed = 7", "seed = -1", "simulation.seed = -1"),
        ("seed = 7", "seed = 7.0", "must be a valid integer"),
        ("batch_size = 32", "batch_size = 33", "multiple of 16"),
        ("angle = [0, 45, 90]", "angle = []", "at least 1 item"),
        ("angle = [0, 45, 90]", "angle = [0, 91]", "angle[1] = 91"),
        ('arrangement = "rotated"', 'arrangement = "aligned"', 'remove angle for arrangement = "aligned"'),
        ("angle = [0, 45, 90]", "n_keys = [1]", 'state angle for arrangement = "rotated"'),
        ('{ function = "ridge" }', '{ function = "ridge", direction = [0.0] }', "must not be zero"),
        ('{ function = "ridge" }', '{ function = "interaction", coordinates = [2, 2] }', "must differ"),
        ('{ function = "ridge" }', '{ function = "interaction", coordinates = [2, 7] }', "uses coordinate 7"),
        ('{ function = "ridge" }', '"rigde"', "data.regression"),
        ('{ function = "ridge" }', '{ function = "sum", terms = [] }', "data.regression.terms"),
        (
            "n_keys = 40",
            'n_keys = 40\nkey_distribution = { distribution = "student_t", df = 2 }',
            "data.key_distribution.df = 2: must be greater than 2; give degrees of freedom above 2, so that the cova",
        ),
        (
            "n_keys = 40",
            'n_keys = 40\nkey_distribution = { distribution = "mixture", n_components = 9 }',
            "needs as many features",
        ),
        ("bandwidth = 0.8", "bandwidth = 0.8\ncombination = [0.5]", "1 weights for n_heads = 2"),
        ("min_replicates = 64", "min_replicates = 640", "above max_replicates = 512"),
        (
            "max_replicates = 512",
            f"max_replicates = {2**53}",
            f"simulation.batch_size = 32: max_replicates = {2**53} takes {2**48} batches, above 10000000; raise it or",
        ),
        ('name = "tiny"', 'name = "../tiny"', "study.name"),
        ('name = "tiny"', 'name = "tiny\\n"', "study.name"),
        ('x = "angle"\ny', 'x = "angel"\ny', "figures.mse.x = 'angel': unknown factor; did you mean \"angle\"?"),
        ('grid = "angles"\nmeasure', 'grid = "angels"\nmeasure', "claims.mse-falls.grid"),
        ('measure = "mse"', 'measure = "hdi"', "claims.mse-falls.index"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = 3 }', "selects no cell"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { bandwith = 0.5 }', "unknown setting; did you mean"),
        ('measure = "mse"', 'measure = "mse"\nkind2 = 1', "claims.mse-falls.kind2"),
        ("bandwidth = [0.5, 1.0]", "bandwidth = [0.5, 0.5]", "two cells have these values"),
        ('x = "angle"\ny', 'x = "logits"\ny', "figures.mse.x = 'logits': unknown factor"),
        ("seed = 7", "seed = " + "9" * 5000, "not valid TOML: an integer beyond 64 bits"),
        ("seed = 7", "seed = 0x" + "f" * 5000, "not valid TOML: an integer beyond 64 bits"),
        ("seed = 7", "seed" + ".a" * 30 + " = 7", "nested more than 20 deep"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { angle = ["a", 45] }', "selects no cell"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { angle = [[1], 45] }', "selects no cell"),
        ("n_keys = 40", "n_keys = 9223372036854775807", "data.n_keys = 9223372036854775807: must be less"),
        ("n_keys = 40", "n_keys = 4_000_000_000", "data.n_keys = 4000000000: one replicate needs an array of 179 GiB"),
        ("n_features = 6", "n_features = 100_000_000_000", "data.n_features = 100000000000: must be less"),
        ("n_heads = 2", "n_heads = 100_000", "one replicate needs an array of"),
        ("batch_size = 32", "batch_size = 16_000_000_000_000", "simulation.batch_size = 16000000000000: must be less"),
        ("bandwidth = [0.5, 1.0]", "bandwidth = [1e-300]", "bandwidth[0] = 1e-300: must be greater"),
        (
            "bandwidth = [0.5, 1.0]",
            'bandwidth = [{ rule = "rate", constant = 1e300 }]',
            "bandwidth[0].constant = 1e+300",
        ),
        (
            "bandwidth = [0.5, 1.0]",
            'bandwidth = [{ rule = "rate", smoothness = 1e-9, constant = 1e-9 }]',
            "comes to 1.58114e-10, outside [1e-09, 1e+09]",
        ),
        ("n_keys = 40", "n_keys = 40\nnoise_sd = 1e200", "data.noise_sd = 1e+200: must be less"),
        ("angle = [0, 45, 90]", "angle = [45]", "claims.mse-falls.x = 'angle': needs two or more different values"),
        ('x = "angle"\nd', 'x = "angle"\nwhere = { angle = 45 }\nd', "other factors fixed; a line has 45"),
        ('hue = "bandwidth"', 'x_scale = "log"', "figures.mse.x = 'angle': is 0 in a cell and has no logarithm"),
        ('grid = "angles"\nmeasure', "measure", "claims.mse-falls.grid: missing; give name of the grid on which"),
        ('x = "angle"\nd', "x = 3\nd", "must be a valid string; give a numeric factor of the grid\n"),
        ("min_replicates = 64", "", "precision.max_replicates = 512: below min_replicates = 1024"),
        ("[profiles.quick]", "[profiles.quick]\n[data]", "not valid TOML"),
    ],
)
def test_mistake__is_named_with_its_place(tmp_path, old, new, expected):
    assert expected in mistakes(tmp_path, edited(DESIGN, old, new)) + "\n"


def test_x_must_be_a_number(tmp_path):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", 'bandwidth = [0.5, 1.0]\nlogits = ["distance", "dot_product"]')
    assert "claims.mse-falls.x = 'logits': is not a number" in mistakes(
        tmp_path, edited(text, 'x = "angle"\ndirection', 'x = "logits"\ndirection')
    )


def test_versus__may_name_factors_only(tmp_path):
    text = edited(DESIGN, 'kind = "monotone"', 'kind = "larger_than"\nversus = { n_keys = 40 }')
    text = edited(text, 'x = "angle"\ndirection = "decreasing"\n', "")
    assert "may name factors of the grid only: angle, bandwidth" in mistakes(tmp_path, text)


def test_versus__must_leave_a_pair_to_compare(tmp_path):
    text = edited(DESIGN, 'x = "angle"\ndirection = "decreasing"\n', "")
    kind = 'kind = "larger_than"\nwhere = { bandwidth = 0.5 }\nversus = { bandwidth = %s }'
    assert "compares every selected cell with itself" in mistakes(
        tmp_path, edited(text, 'kind = "monotone"', kind % 0.5)
    )
    written = tmp_path / "sound.toml"
    written.write_text(edited(text, 'kind = "monotone"', (kind % 1.0).replace("where = { bandwidth = 0.5 }\n", "")))
    load_design(written, "quick")


def test_label__names_a_choice_and_changes_no_number():
    plain, named = (minimal_cell(regression={"function": "ridge"} | extra) for extra in ({}, {"label": "sin x"}))
    assert (plain.coordinates["regression"], named.coordinates["regression"]) == ("ridge", "sin x")
    assert plain.identity("a") == named.identity("a")


def test_wrong_names__are_reported_beside_wrong_values_and_alone(tmp_path):
    text = edited(DESIGN, 'x = "angle"\nd', 'x = "angel"\nwhere = { bandwidth = 0.7 }\nd')
    text = edited(text, 'hue = "bandwidth"', 'hue = "bandwith"')
    text = edited(text, "n_heads = 2", "n_heads = 2\nn_head = 3")
    text = edited(text, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5, -1.0]")
    assert places(mistakes(tmp_path, text)) == {
        "heads.n_head",
        "grids.angles.factors.bandwidth[1]",
        "claims.mse-falls.x",
        "figures.mse.hue",
    }


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("angle = [0, 45, 90]", "angle = []", "grids.angles.factors.angle"),
        ("angle = [0, 45, 90]", "angle = 45", "grids.angles.factors.angle"),
        ("[grids.angles.factors]\nangle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", "[grids]\nangles = 3", "grids.angles"),
        (
            "min_replicates = 64\nmax_replicates = 512",
            "min_replicates = 640\nmax_replicates = 512\n[grids.angles.precision]\nabsolute_mcse = {}",
            "precision.min_replicates",
        ),
        ("min_replicates = 64", 'min_replicates = "few"', "precision.min_replicates"),
        ("n_keys = 40\nn_features = 6", 'n_keys = 40\nn_features = "six"', "data.n_features"),
    ],
)
def test_one_mistake__is_reported_once_without_what_follows_from_it(tmp_path, old, new, place):
    text = edited(DESIGN, old, new)
    message = mistakes(tmp_path, text)
    assert len(message.splitlines()) == 1 and place in message, message


def test_table_given_as_a_number__is_one_mistake(tmp_path):
    text = edited(DESIGN, '[data]\nn_keys = 40\nn_features = 6\nregression = { function = "ridge" }\n', "")
    message = mistakes(tmp_path, "data = 3\n" + text)
    assert message.endswith("data = 3: must be a table")


def test_absent_entry__is_shown_without_a_value(tmp_path):
    message = mistakes(tmp_path, edited(DESIGN, "n_keys = 40\n", ""))
    assert "data.n_keys: missing; give number of training pairs n" in message and "None" not in message


def test_profile__changes_a_grid_that_is_named_like_a_setting(tmp_path):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.noise.factors]").replace('"angles"', '"noise"')
    text += "\n[profiles.full.grids.noise]\nby_query = true\n[profiles.full.data]\nregression = { function = 'linear' }"
    quick, full = (load_design(write_design(tmp_path, text), profile) for profile in ("quick", "full"))
    assert len(full.cells) == len(quick.cells) == 6
    assert [design.cells[0].by_query for design in (quick, full)] == [False, True]
    # Negative control: a composite setting is replaced whole, not merged.
    assert full.cells[0].cell.coordinates["regression"] == "linear"


def test_bandwidth_rule__is_one_level_whatever_its_number(tmp_path):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", 'bandwidth = [1.0, "attention"]\nhead_dim = [1, 2]')
    text = edited(text, 'measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = "attention" }')
    cells = load_design(write_design(tmp_path, text)).cells  # at head_dim = 1 both bandwidths are 1
    levels = [level(planned.cell.coordinates, "bandwidth") for planned in cells]
    assert levels == [1.0, 1.0, "attention", "attention"] * 3
    chosen = [selected(planned.cell.coordinates, {"bandwidth": 1.0}) for planned in cells]
    assert chosen == [True, True, False, False] * 3
    assert [planned.cell.bandwidth for planned in cells[:4]] == [1.0, 1.0, 1.0, 2**0.25]
    assert "needs two or more different values" in mistakes(
        tmp_path,
        edited(text.replace('where = { bandwidth = "attention" }', ""), 'x = "angle"\nd', 'x = "bandwidth"\nd'),
    )


def test_logarithmic_slope__needs_positive_x(tmp_path):
    text = edited(DESIGN, 'kind = "monotone"', 'kind = "slope"\nscale = "log_x"\nvalue = 1\nmargin = 0.1')
    text = edited(text, 'direction = "decreasing"\n', "")
    assert "claims.mse-falls.x = 'angle': is 0 in a cell" in mistakes(tmp_path, text)
    load_design(write_design(tmp_path, edited(text, 'scale = "log_x"', 'scale = "linear"')))


def test_many_cells__are_read_in_seconds_and_too_many_refused(tmp_path):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5]")
    text = edited(text, "angle = [0, 45, 90]", f"angle = {[step / 200 for step in range(15_000)]}")
    began = time.process_time()
    assert len(load_design(write_design(tmp_path, text)).cells) == 15_000
    assert time.process_time() - began < 6  # comparing every two cells takes three times as long
    text += f"\n[grids.more.factors]\nangle = {[step / 200 for step in range(15_000)]}"
    assert "grids.more.factors = 15000: brings the design to 30000 cells" in mistakes(tmp_path, text)


def test_byte_order_mark__is_no_part_of_the_design(tmp_path):
    path = tmp_path / "design.toml"
    path.write_bytes(b"\xef\xbb\xbf" + DESIGN.encode())
    assert load_design(path).text == DESIGN


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "longer than"),
        (b"", "no such profile"),
        (b"= 3", "not valid"),
    ],
)
def test_unreadable_files__are_refused(tmp_path, content, expected):
    path = tmp_path / "design.toml"
    path.write_bytes(content)
    with pytest.raises(DesignError, match=expected):
        load_design(path)


def test_missing_file__is_refused(tmp_path):
    with pytest.raises(DesignError, match="cannot be read"):
        load_design(tmp_path / "absent.toml")


def test_head_file__travels_inside_the_cell(tmp_path):
    projections = np.random.default_rng(0).normal(size=(2, 6, 2))
    np.save(tmp_path / "heads.npy", projections)
    text = edited(DESIGN, 'arrangement = "rotated"', 'arrangement = "file"\nfile = "heads.npy"')
    text = edited(text, "angle = [0, 45, 90]", "n_keys = [10, 20]").replace('x = "angle"', 'x = "n_keys"')
    cell = load_design(write_design(tmp_path, text)).cells[0].cell
    np.testing.assert_array_equal(cell.file_projections, projections)
    np.save(tmp_path / "heads.npy", projections[:1])
    assert "holds shape (1, 6, 2)" in mistakes(tmp_path, text)
    np.save(tmp_path / "heads.npy", np.array([object()]))
    assert "cannot be read as .npy" in mistakes(tmp_path, text)


def test_head_files__that_are_none_are_refused(tmp_path):
    text = edited(DESIGN, 'arrangement = "rotated"', 'arrangement = "file"\nfile = "heads.npy"')
    text = edited(text, "angle = [0, 45, 90]", "n_keys = [10, 20]").replace('x = "angle"', 'x = "n_keys"')
    assert "must hold no control character; U+0000 is one" in mistakes(tmp_path, edited(text, "heads.npy", "a\\u0000b"))
    path = tmp_path / "heads.npy"
    with path.open("wb") as file:
        np.savez(file, a=np.ones(3))
    assert "cannot be read as .npy" in mistakes(tmp_path, text)
    path.write_bytes(b"PK\x03\x04 is not an archive")
    assert "cannot be read as .npy" in mistakes(tmp_path, text)
    projections = np.random.default_rng(0).normal(size=(2, 6, 2))
    projections[1, :, 1] = -2 * projections[1, :, 0]
    np.save(path, projections)
    assert "head 1 has rank 1; give head_dim = 2" in mistakes(tmp_path, text)
    np.save(path, np.full((2, 6, 2), np.inf))
    assert "must hold real numbers only" in mistakes(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('title = "A tiny study"', 'title = "a\\u001b[2J"', "study.title"),
        ('aim = "To test."', 'aim = "a\\u0000"', "study.aim"),
        ('"The error falls."', '"a\\nb"', "claims.mse-falls.statement"),
        ('title = "Error against angle"', 'title = "\\u202egnp.exe"', "figures.mse.title"),
        ("[grids.angles.factors]", '[grids.angles]\ntitle = "a\\rb"\n[grids.angles.factors]', "grids.angles.title"),
        ('function = "ridge"', 'function = "ridge", label = "a\\u2028b"', "data.regression.label"),
    ],
)
def test_control_characters__are_refused_and_spelt_out(tmp_path, old, new, place):
    message = mistakes(tmp_path, edited(DESIGN, old, new))
    assert f"{place} = " in message and "must hold no control character; U+" in message
    assert message.isprintable()
    load_design(write_design(tmp_path, edited(DESIGN, "To test.", "First.\\n\\n\\tSecond: ∑ é 👍.")))


@pytest.fixture(params=["fifo", "folder", "device", "socket"])
def irregular(request, tmp_path):
    """A path that is none of a regular file."""
    path = tmp_path / "odd"
    match request.param:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
    return path


def test_irregular_files__are_refused_without_waiting(irregular, tmp_path):
    with pytest.raises(DesignError, match="cannot be read: a folder, pipe, device or socket"):
        load_design(irregular)
    text = edited(DESIGN, 'arrangement = "rotated"', 'arrangement = "file"\nfile = "odd"')
    text = edited(text, "angle = [0, 45, 90]", "n_keys = [10, 20]").replace('x = "angle"', 'x = "n_keys"')
    assert "heads.file = 'odd': cannot be read: a folder, pipe, device or socket" in mistakes(tmp_path, text)


def test_large_files__are_refused(tmp_path, monkeypatch):
    path = write_design(tmp_path, DESIGN + "#" * MAX_BYTES)
    with pytest.raises(DesignError, match=f"longer than {MAX_BYTES} bytes; is it the right file"):
        load_design(path)
    monkeypatch.setattr("simstudy.design.feasibility.MAX_HEAD_BYTES", 200)
    np.save(tmp_path / "heads.npy", np.random.default_rng(0).normal(size=(2, 6, 2)))
    text = edited(DESIGN, 'arrangement = "rotated"', 'arrangement = "file"\nfile = "heads.npy"')
    text = edited(text, "angle = [0, 45, 90]", "n_keys = [10, 20]").replace('x = "angle"', 'x = "n_keys"')
    assert "heads.file = 'heads.npy': longer than 200 bytes" in mistakes(tmp_path, text)


def test_features_needed__by_arrangement():
    def needed(**settings):
        return features_needed(minimal_cell(n_heads=3, head_dim=2, **settings).heads)

    assert needed(arrangement="aligned") == 2
    assert needed(arrangement="orthogonal") == 6
    assert needed(arrangement="rotated", angle=0) == 2
    assert needed(arrangement="rotated", angle=1) == 6
    assert needed(arrangement="principal_angles", principal_angles=[0, 5]) == 4
    assert impossibilities(minimal_cell(arrangement="haar", n_heads=30)) == []


def test_identity__follows_numbers_not_labels():
    cell = minimal_cell()
    assert cell.identity("a") != cell.identity("b")
    assert cell.identity("a") == minimal_cell().identity("a")
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"seed": 8}, {"batch_size": 64}, {"noise_sd": 2.0}):
        assert minimal_cell(**change).identity("a") != cell.identity("a")


def test_data_id__is_shared_by_cells_that_differ_in_the_estimator_only():
    cell = minimal_cell()
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"noise_sd": 2.0}, {"n_heads": 3}, {"regression": "linear"}):
        assert minimal_cell(**change).data_id == cell.data_id
    for change in ({"seed": 8}, {"key_distribution": "sphere"}):
        assert minimal_cell(**change).data_id != cell.data_id
