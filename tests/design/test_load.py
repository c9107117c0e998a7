"""Design files: the good are loaded, the bad are refused with every mistake named."""

import cProfile

import pytest
from builders import DESIGN, edited, faults, loaded, minimal_cell, mistakes, write_design

from simstudy.design import load
from simstudy.design.claims import BaseClaim
from simstudy.design.load import load_design
from simstudy.design.settings.cell import TABLE_OF, TABLES
from simstudy.design.settings.levels import level, selected

LEVELS = "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]"
MONOTONE = DESIGN[DESIGN.index("[claims") : DESIGN.index("expected")]
LARGER = edited(MONOTONE, 'kind = "monotone"', 'kind = "larger_than"\nwhere = { angle = 1 }\nversus = { angle = 45 }')
LARGER = edited(LARGER, 'x = "angle"\ndirection = "decreasing"\n', "")


def places(message: str) -> set[str]:
    return {line.split(": ")[1].split(" = ")[0] for line in message.splitlines()}


def test_setting_names__are_unique_over_tables():
    assert len(TABLE_OF) == sum(len(model.model_fields) for model in TABLES.values())


def test_design__is_crossed_with_the_last_factor_fastest(tmp_path):
    design = loaded(tmp_path)
    levels = [(c.cell.heads.angle, c.cell.bandwidth) for c in design.cells]
    assert levels == [(0, 0.5), (0, 1.0), (45, 0.5), (45, 1.0), (90, 0.5), (90, 1.0)]
    assert isinstance(design.claims["mse-falls"], BaseClaim)
    assert design.text == DESIGN


def test_profile__replaces_entries_and_keeps_the_rest(tmp_path):
    quick, full = (loaded(tmp_path, profile=profile) for profile in ("quick", "full"))
    assert [quick.cells[0].precision.max_replicates, full.cells[0].precision.max_replicates] == [512, 1024]
    assert quick.cells[0].precision.min_replicates == full.cells[0].precision.min_replicates
    assert "no such profile" in mistakes(tmp_path, DESIGN, "ful")


def test_all_mistakes__are_reported_together(tmp_path):
    text = edited(DESIGN, "n_keys = 40", 'n_keys = "many"\nn_kees = 3')
    text = edited(text, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5, -1.0]\nhead_dim = [2, 7]\nn_heads = []")
    text = edited(text, 'direction = "decreasing"', 'direction = "down"')
    message = mistakes(tmp_path, text)
    for expected in (
        "data.n_kees = 3: unknown key; did you mean",
        "claims.mse-falls.direction = 'down': give \"increasing\" or",
        "grids.angles.factors.n_heads = []",
        "data.n_keys = 'many': must be a valid integer; give number of training pairs",
        "grids.angles.factors.bandwidth[1] = -1.0: must be greater than or equal to 0.000000001; give a positive",
    ):
        assert expected in message, message
    assert all(line.startswith(str(tmp_path)) for line in message.splitlines())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("n_features = 6", "n_features = 3", "take up 4 features; n_features is 3"),
        ("head_dim = 2", "head_dim = 7", "head_dim = 7: exceeds n_features"),
        ("bandwidth = 0.8", "bandwidth = inf", "must be a finite number"),
        ("bandwidth = 0.8", "bandwidth = true", "estimator.bandwidth"),
        ("seed = 7", "seed = -1", "simulation.seed = -1"),
        ("seed = 7", "seed = 7.0", "must be a valid integer"),
        ("batch_size = 32", "batch_size = 33", "multiple of 16"),
        ("angle = [0, 45, 90]", "angle = []", "must have at least 1 item; give"),
        ('name = "tiny"', 'name = "../up"', "study.name = '../up': give lower-case letters and digits"),
        ("angle = [0, 45, 90]", "angle = [0, 91]", "angle[1] = 91"),
        ('arrangement = "rotated"', 'arrangement = "aligned"', 'remove angle for arrangement = "aligned"'),
        ("angle = [0, 45, 90]", "n_keys = [1]", 'state angle for arrangement = "rotated"'),
        ('{ kind = "ridge" }', '{ kind = "ridge", direction = [0.0] }', "must not be zero"),
        ('{ kind = "ridge" }', '{ kind = "interaction", coordinates = [2, 2] }', "must differ"),
        ('{ kind = "ridge" }', '{ kind = "interaction", coordinates = [2, 7] }', "uses coordinate 7"),
        ('{ kind = "ridge" }', '{ kind = "sum", terms = [] }', "data.regression.terms"),
        ("[heads]", 'key_distribution = { kind = "student_t", df = 2 }\n[heads]', "n.df = 2: must be greater than 2"),
        ("[heads]", 'key_distribution = { kind = "mixture", n_components = 9 }\n[heads]', "needs as many features"),
        ("bandwidth = 0.8", "bandwidth = 0.8\ncombination = [0.5]", "1 weights for n_heads = 2"),
        ("min_replicates = 64", "min_replicates = 640", "max_replicates = 512: below min_replicates = 640"),
        ("min_replicates = 64\nmax_replicates = 512", "min_replicates = 70000", "max_replicates = 65536: below"),
        ("[heads]", "[budget]\nwall_seconds = -1\n[heads]", "give a positive number of seconds on the clock"),
        ("max_replicates = 512", f"max_replicates = {2**53}", "must be less than or equal to 160000000; give ceiling"),
        ('name = "tiny"', 'name = "../tiny"', "study.name"),
        ('name = "tiny"', 'name = "tiny\\n"', "study.name"),
        ('x = "angle"\ny', 'x = "angel"\ny', "figures.mse.x = 'angel': unknown factor; did you mean \"angle\"?"),
        ('grid = "angles"\nmeasure', 'grid = "angels"\nmeasure', "claims.mse-falls.grid"),
        ('measure = "mse"', 'measure = "hdi"', "claims.mse-falls.index"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = 3 }', "selects no cell"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { bandwith = 0.5 }', "unknown setting; did you mean"),
        ('measure = "mse"', 'measure = "mse"\nkind2 = 1', "claims.mse-falls.kind2"),
        ('kind = "monotone"', 'kind = "smaller_than"', "unknown kind; known: agrees_with_theory, monotone, "),
        ("[profiles.full.precision]", "[profiles.full.precison]", "profiles.full.precison = {'max_replicates': 1024}"),
        ("max_replicates = 1024", "max_replicates = 10", "profiles.full.precision.max_replicates = 10: below min_r"),
        ("[profiles.quick]", "[profile.quick]", 'profile: unknown key; did you mean "profiles"?'),
        ("bandwidth = [0.5, 1.0]", '"regression.kind" = ["ridge"]', "is the kind or the label of a choice; write"),
        ("bandwidth = [0.5, 1.0]", '"transformation." = ["none"]', "unknown key"),
        ("bandwidth = [0.5, 1.0]", "bandwidth = [0.5, 0.5]", "two cells have these values"),
        ("seed = 7", "seed = " + "9" * 5000, "not valid TOML: an integer beyond 64 bits"),
        ("seed = 7", "seed" + ".a" * 30 + " = 7", "nested more than 20 deep"),
        ('measure = "mse"', 'measure = "mse"\nwhere = { angle = ["a", 45] }', "selects no cell"),
        ("n_keys = 40", "n_keys = 5_000_000_000", "data.n_keys = 5000000000: one replicate needs an array of 224 GiB"),
        ("n_features = 6", "n_features = 100_000_000_000", "data.n_features = 100000000000: must be less"),
        ("batch_size = 32", "batch_size = 16_000_000_000_000", "simulation.batch_size = 16000000000000: must be less"),
        ("bandwidth = [0.5, 1.0]", "bandwidth = [1e-300]", "bandwidth[0] = 1e-300: must be greater"),
        ("bandwidth = [0.5, 1.0]", 'bandwidth = [{ kind = "power", add = -3, tuned_at = 20 }]', "comes to inf, out"),
        ("n_keys = 40", "n_keys = 40\nnoise_sd = 1e200", "data.noise_sd = 1e+200: must be less"),
        ("angle = [0, 45, 90]", "angle = [45]", "claims.mse-falls.x = 'angle': needs two or more different values"),
        ('x = "angle"\nd', 'x = "angle"\nwhere = { angle = 45 }\nd', "other factors fixed; a line has 45"),
        ('hue = "bandwidth"', 'x_scale = "log"', "figures.mse.x = 'angle': is 0 in a cell and has no logarithm"),
        ('grid = "angles"\nmeasure', "measure", "claims.mse-falls.grid: missing; give name of the grid on which"),
        ('x = "angle"\nd', "x = 3\nd", "must be a valid string; give a numeric factor of the grid\n"),
        ("min_replicates = 64", "", "precision.max_replicates = 512: below min_replicates = 1024"),
        ("[profiles.quick]", "[profiles.quick]\n[data]", "not valid TOML"),
        ("n_keys = 40\n", "", "data.n_keys: missing; give number of training pairs n, at least 1"),
        (
            'kind = "monotone"\ngrid = "angles"\nmeasure = "mse"\nx = "angle"\ndirection = "decreasing"',
            'kind = "equals"\ngrid = "angles"\nmeasure = "mse"\ncompared = "ratio"\nvalue = 1.0\nmargin = 0.9',
            "claims.mse-falls.compared = 'ratio': state versus",
        ),
    ],
)
def test_mistake__is_named_with_its_place(tmp_path, old, new, expected):
    assert expected in mistakes(tmp_path, edited(DESIGN, old, new)) + "\n"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("3", "data.regression = 3: must be a table; give zero, linear, quadratic, ridge"),
        ("{ amplitude = 2.0 }", "data.regression.kind: missing; give zero, linear, quadratic, ridge"),
        ("{ kind = 3 }", "data.regression.kind = 3: unknown kind; known: zero, linear, quadratic, ridge"),
        ('{ kind = "rigde" }', "data.regression.kind = 'rigde': unknown kind; did you mean \"ridge\"?"),
        ('{ kind = "sum", terms = ["rigde"] }', "data.regression.terms[0].kind = 'rigde': unknown kind; did you mean"),
    ],
)
def test_no_alternative_of_that_kind__is_told_in_one_line_without_words_of_the_validator(tmp_path, stated, expected):
    message = mistakes(tmp_path, edited(DESIGN, '{ kind = "ridge" }', stated))
    assert expected in message and len(message.splitlines()) == 1, message
    assert not any(word in message for word in ("discriminator", "tag", "dictionary", "validation")), message


PAIRED = 'kind = "larger_than"\nwhere = { bandwidth = 0.5 }\nversus = '


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ('kind = "monotone"\ndirection = "decreasing"\nx = "logits"', "mse-falls.x = 'logits': is not a number"),
        ('kind = "slope"\nscale = "log_x"\nvalue = 1\nmargin = 0.1\nx = "angle"', "mse-falls.x = 'angle': is 0 in"),
        ('kind = "slope"\nvalue = 1\nmargin = 0.1\nx = "angle"', ""),
        (PAIRED + "{ n_keys = 40 }", "may name factors of the grid only: angle, bandwidth"),
        (PAIRED + "{ bandwidth = 0.5 }", "compares every selected cell with itself"),
        (PAIRED + "{ bandwidth = 1.0 }", ""),
    ],
)
def test_claim__fits_the_levels_of_its_grid(tmp_path, stated, expected):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", 'bandwidth = [0.5, 1.0]\nlogits = ["distance", "dot_product"]')
    text = edited(text, 'x = "angle"\ndirection = "decreasing"\n', "")
    found = faults(tmp_path, edited(text, 'kind = "monotone"', stated))
    assert expected in found if expected else not found


def test_label__names_a_choice_and_changes_no_number():
    plain, named = (minimal_cell(regression={"kind": "ridge"} | extra) for extra in ({}, {"label": "sin x"}))
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
            "precision.max_replicates",
        ),
        ("min_replicates = 64", 'min_replicates = "few"', "precision.min_replicates"),
        ("bandwidth = [0.5, 1.0]", "bandwith = [0.5, 1.0]", "grids.angles.factors.bandwith"),
        (MONOTONE, LARGER, "claims.mse-falls.where"),
        (f"factors]\n{LEVELS}\n\n{MONOTONE}", f"factor]\n{LEVELS}\n\n{LARGER}", "grids.angles.factor"),
        ("n_keys = 40\nn_features = 6", 'n_keys = 40\nn_features = "six"', "data.n_features"),
    ],
)
def test_one_mistake__is_reported_once_without_what_follows_from_it(tmp_path, old, new, place):
    text = edited(DESIGN, old, new)
    message = mistakes(tmp_path, text)
    assert len(message.splitlines()) == 1 and place in message, message


def test_table_given_as_a_number__is_one_mistake(tmp_path):
    text = edited(DESIGN, '[data]\nn_keys = 40\nn_features = 6\nregression = { kind = "ridge" }\n', "")
    message = mistakes(tmp_path, "data = 3\n" + text)
    assert message.endswith("data = 3: must be a table")


def test_profile__changes_a_grid_that_is_named_like_a_setting(tmp_path):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.noise.factors]").replace('"angles"', '"noise"')
    text += "\n[profiles.full.grids.noise]\nby_query = true\n[profiles.full.data]\nregression = { kind = 'linear' }"
    quick, full = (loaded(tmp_path, text, profile) for profile in ("quick", "full"))
    assert len(full.cells) == len(quick.cells) == 6
    assert [design.cells[0].by_query for design in (quick, full)] == [False, True]
    # Negative control: a composite setting is replaced whole, not merged.
    assert full.cells[0].cell.coordinates["regression"] == "linear"


def test_bandwidth_rule__is_one_level_whatever_its_number(tmp_path):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", 'bandwidth = [1.0, "attention"]\nhead_dim = [1, 2]')
    text = edited(text, 'measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = "attention" }')
    cells = loaded(tmp_path, text).cells  # at head_dim = 1 both bandwidths are 1
    levels = [level(planned.cell.coordinates, "bandwidth") for planned in cells]
    assert levels == [1.0, 1.0, "attention", "attention"] * 3
    chosen = [selected(planned.cell.coordinates, {"bandwidth": 1.0}) for planned in cells]
    assert chosen == [True, True, False, False] * 3
    assert [planned.cell.bandwidth for planned in cells[:4]] == [1.0, 1.0, 1.0, 2**0.25]
    everywhere = text.replace('where = { bandwidth = "attention" }', "")
    along = edited(everywhere, 'x = "angle"\nd', 'x = "bandwidth"\nd')
    assert "needs two or more different values" in mistakes(tmp_path, along)


def of_many_cells(count: int) -> str:
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", "bandwidth = [0.5]")
    return edited(text, "angle = [0, 45, 90]", f"angle = {[step / 200 for step in range(count)]}")


def test_work_of_reading__grows_like_the_number_of_cells(tmp_path):
    """Counted in calls, not in seconds: comparing every two cells would take four times as many for twice the cells."""
    calls = []
    for count in (200, 400):
        path, profiler = write_design(tmp_path, of_many_cells(count)), cProfile.Profile()
        assert len(profiler.runcall(load_design, path).cells) == count
        calls.append(sum(entry.callcount for entry in profiler.getstats()))
    assert calls[1] < 2.2 * calls[0]


def test_settings_of_a_grid__may_replace_a_kind_alone(tmp_path):
    text = DESIGN.replace(
        "[grids.angles.factors]", '[grids.angles.settings]\n"regression.kind" = "ridge"\n[grids.angles.factors]'
    )
    assert loaded(tmp_path, text).cells[0].cell.data.regression.kind == "ridge"


def test_too_many_cells__are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_CELLS", 200)
    text = of_many_cells(150)
    assert len(loaded(tmp_path, text).cells) == 150
    text += f"\n[grids.more.factors]\nangle = {[step / 200 for step in range(150)]}"
    assert "factors = 150: brings the design to 300 cells, more than 200; use fewer values" in mistakes(tmp_path, text)


def test_byte_order_mark__is_no_part_of_the_design(tmp_path):
    path = tmp_path / "design.toml"
    path.write_bytes(b"\xef\xbb\xbf" + DESIGN.encode())
    assert load_design(path).text == DESIGN


def test_claims_without_a_wish_for_replicates__are_noted(tmp_path):
    silent = edited(DESIGN, "relative_mcse = { mse = 0.05 }\n", "")
    remark = "precision: no error is wanted: cells of angles stop at min_replicates = 64; state relative_mcse, or stop"
    assert any(note.startswith(remark) for note in loaded(tmp_path, silent).notes)
    for stated in (DESIGN, edited(silent, "[precision]\n", '[precision]\nstop = "verdict"\n')):
        assert not any("no error" in note for note in loaded(tmp_path, stated).notes)


@pytest.mark.parametrize(
    ("ceiling", "population", "told"), [(96, False, True), (97, False, False), (2016, True, True), (2017, True, False)]
)
def test_ceiling_that_allows_no_verdict__is_noted(tmp_path, ceiling, population, told):
    text = edited(DESIGN, "max_replicates = 512", f"max_replicates = {ceiling}")
    if population:
        text = edited(text, "batch_size = 32", 'batch_size = 32\npopulation = ["queries"]')
        text += '\n[queries]\nqueries = { kind = "gaussian", count = 2, scale = 0.5 }\n'
    notes = loaded(tmp_path, text).notes
    assert any(f"max_replicates = {ceiling}: too few for a verdict" in note for note in notes) == told
