"""Design files: the good are loaded, and shipped ones name what a seed draws; a bad one has a line with a remedy."""

import cProfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes, varied, write_design

from simstudy.data import heads
from simstudy.data.heads import overlap
from simstudy.data.shared import projections_of
from simstudy.design import cells
from simstudy.design.answerable import PlannedGrid, Reference, draws_of, level, selected
from simstudy.design.cells import impossibilities
from simstudy.design.contents import read_contents
from simstudy.design.document import BaseClaim
from simstudy.design.load import check, declared, load_design
from simstudy.design.settings.cell import Cell
from simstudy.replicates.batch import no_moments


def test_design__is_crossed_with_the_last_factor_fastest(tmp_path):
    design = loaded(tmp_path)
    levels = [(c.cell.heads.angle, c.cell.bandwidth) for c in design.cells]
    assert levels == [(0, 0.5), (0, 1.0), (45, 0.5), (45, 1.0), (90, 0.5), (90, 1.0)]
    assert isinstance(design.claims["mse-falls"], BaseClaim) and design.text == DESIGN
    (tmp_path / "design.toml").write_bytes(b"\xef\xbb\xbf" + DESIGN.encode())  # a byte order mark is no part of it
    assert load_design(tmp_path / "design.toml").text == DESIGN
    loaded(tmp_path, edited(DESIGN, "To test.", "First.\\n\\n\\tSecond: ∑ é 👍."))


def test_profile__replaces_entries_and_keeps_the_rest(tmp_path):
    quick, full = (loaded(tmp_path, profile=profile) for profile in ("quick", "full"))
    assert [quick.cells[0].precision.max_replicates, full.cells[0].precision.max_replicates] == [512, 1024]
    assert quick.cells[0].precision.min_replicates == full.cells[0].precision.min_replicates
    assert "no such profile" in mistakes(tmp_path, DESIGN, "ful")
    # A mistake in another profile is that of the other.
    bad = edited(DESIGN, "max_replicates = 1024", "max_replicates = 10")
    assert len(loaded(tmp_path, bad).cells) == 6
    assert "profiles.full.precision.max_replicates = 10: below min_replicates = 64" in mistakes(tmp_path, bad, "full")


@pytest.mark.parametrize("old, new, entry, remedy", [
    # what is stated, what takes its place, the entry that is named, the remedy
    ("n_keys = 40", 'n_keys = "many"', "data.n_keys = 'many'", "Input should be a valid integer"),
    ("n_keys = 40", "n_keys = 40\nsamples = 3", "data.samples = 3", "unknown key; known: n_keys, "),
    ("n_keys = 40", f"n_keys = 40\n{'x' * 300} = 3", f"data.{'x' * 195}...", "unknown key"),
    ("n_keys = 40\n", "", "data.n_keys", "missing; add it"),
    ("[study]", 'functions = { method = "m", parameters = 3 }\n[study]', "functions.parameters = 3", "valid dict"),
    ("n_keys = 40", "n_keys = 40\nnoise_sd = 1e200", "data.noise_sd = 1e+200", "Input should be less"),
    ("n_keys = 40", "n_keys = 5_000_000_000", "data.n_keys = 5000000000", "needs an array of 224 GiB, above 8; use"),
    ("n_features = 6", "n_features = 3", "heads.n_heads = 2", "4 features for so many heads"),
    ("head_dim = 2", "head_dim = 7", "heads.head_dim = 7", "7 dimensions, but n_features = 6"),
    ('arrangement = "rotated"', 'arrangement = "orthogonl"', "heads.arrangement = 'orthogonl'", 'mean "orthogonal"?'),
    ("angle = [0, 45, 90]", 'angle = [45]\narrangement = ["haar"]', "grids.angles.factors.angle[0] = 45.0", "remove"),
    ("angle = [0, 45, 90]", "n_keys = [1]", "heads.angle", 'state angle for arrangement = "rotated"'),
    ("seed = 7", "seed = -1", "simulation.seed = -1", "Input should be greater than or equal to 0"),
    ("seed = 7", "seed" + ".a" * 30 + " = 7", "simulation.seed = {'a'", "Input should be a valid integer"),
    ("seed = 7", "seed = " + "9" * 5000, "", "not valid TOML: Exceeds the limit"),
    *(("batch_size = 32", f"batch_size = {n}", f"simulation.batch_size = {n}", "multiple of 16") for n in (8, 33)),
    ("angle = [0, 45, 90]", "angle = []", "grids.angles.factors.angle = []", "List should have at least 1 item"),
    *(("angle = [0, 45, 90]", f"angle = {{ range = {each} }}", "grids.angles.factors.angle = {'range': ", ": must be a")
      for each in ("[0]", "[0, 1.5]", "[0, 9, 0]", "[0, true]", "3", f"[{-(2**63)}, {2**63 - 1}]", "[0, 2], step = 1")),
    ("angle = [0, 45, 90]", "angle = [0, 91]", "grids.angles.factors.angle[1] = 91", "Input should be less"),
    ("angle = [0, 45, 90]", "angle = [0, nan]", "grids.angles.factors.angle", "nan is no level"),
    ("bandwidth = [0.5, 1.0]", "bandwidth = [0.5, inf]", "grids.angles.factors.bandwidth[1] = inf", "finite"),
    ("bandwidth = [0.5, 1.0]", "bandwidth = [1]\n[[grids.angles.drop]]\nbandwidth = 1", "grids.angles.drop", "no cell"),
    ("bandwidth = [0.5, 1.0]", "bandwidth = [0.5, 0.5]", "grids.angles.factors", "two cells have these values"),
    ("bandwidth = [0.5, 1.0]", "batch_size = [32, 64]", "grids.angles.factors", "in batches of different sizes"),
    ("bandwidth = [0.5, 1.0]", "bandwith = [0.5, 1.0]", "grids.angles.factors.bandwith", 'did you mean "bandwidth"?'),
    ("bandwidth = [0.5, 1.0]", '"regression.kind" = ["ridge"]', "grids.angles.factors.regression.kind", "whole choice"),
    ("bandwidth = [0.5, 1.0]", '"regression.amplitud" = [1]', "grids.angles.factors.regression.amplitud[0] = 1",
     'did you mean "amplitude"?'),
    ("bandwidth = [0.5, 1.0]", '"normaliser.ridg" = [2]\n[grids.angles.settings]\nnormaliser = "local_linear"',
     "grids.angles.factors.normaliser.ridg[0] = 2", 'did you mean "ridge"?'),
    *(("bandwidth = [0.5, 1.0]", f'bandwidth = [{{ kind = "log", power = 9e5, tuned_at = {n} }}]',
       "grids.angles.factors.bandwidth[0] = 'log(", f"comes to {b}, outside") for n, b in ((10_000, "inf"), (2, "0"))),
    ("[grids.angles.factors]", "[grids.angles.factor]", "grids.angles.factor", 'did you mean "factors"?'),
    ("[grids.angles.factors]", "[grids]\nbeta = 3\n[grids.angles.factors]", "grids.beta = 3", "be a valid dictionary"),
    ("[grids.angles.factors]", "[grids.Angles.factors]", "grids.Angles", "not a valid name; use lower-case"),
    ('name = "tiny"', 'name = "../up"', "study.name = '../up'", "not a valid name; use lower-case"),
    ('{ kind = "ridge" }', "3", "data.regression = 3", "Input should be a valid dictionary"),
    ('{ kind = "ridge" }', '"rigde"', "data.regression.kind = 'rigde'", 'unknown kind; did you mean "ridge"?'),
    ('{ kind = "ridge" }', "{ amplitude = 2.0 }", "data.regression.kind", "missing; add it"),
    ('{ kind = "ridge" }', '{ kind = "ridge", amplitud = 2.0 }', "data.regression.amplitud = 2.0", 'mean "amplitude"?'),
    ('{ kind = "ridge" }', '{ kind = "ridge", direction = [0.0] }', "data.regression", "must not be zero"),
    ('{ kind = "ridge" }', '{ kind = "interaction", coordinates = [2, 7] }', "data.regression", "7 coordinates"),
    ('{ kind = "ridge" }', '{ kind = "interaction", coordinates = [2] }', "data.regression.coordinates[1]", "missing"),
    ('{ kind = "ridge" }', '{ kind = "sum", terms = [] }', "data.regression.terms = []", "List should have at least 1"),
    ('{ kind = "ridge" }', '{ kind = "sum", terms = ["x"] }', "data.regression.terms[0].kind = 'x'", "known: zero"),
    ("[heads]", 'key_distribution = { kind = "student_t", df = 2 }\n[heads]', "data.key_distribution.df = 2", "than 2"),
    ("[heads]", 'key_distribution = { kind = "mixture", n_components = 9 }\n[heads]', "data.key_distribution", "9 co"),
    ("bandwidth = 0.8", "bandwidth = 0.8\ncombination = [0.5]", "estimator.combination", "1 weights for n_heads = 2"),
    ("min_replicates = 64", "min_replicates = 640", "precision.max_replicates = 512", "below min_replicates = 640"),
    ("mse = 0.05", "msee = 0.05", "precision.relative_mcse = 'msee'", 'did you mean "mse"?'),
    ("[profiles.quick]", "[profile.quick]", "profile", 'unknown key; did you mean "profiles"?'),
    ("[profiles.quick]", '[profiles.quick.grids.angles.settings]\n"regression.wave" = "x"',
     "profiles.quick.grids.angles.settings.regression.wave = 'x'", "Input should be 'sin'"),
    ("[profiles.quick]", "[profiles]\nquick = 3", "profiles.quick = 3", "valid dictionary"),
    ("[profiles.quick]", "[profiles.quick.data]\nn_keys = 0", "profiles.quick.data.n_keys = 0", "should be greater"),
    ('x = "angle"\ny', 'x = "angel"\ny', "figures.mse.x = 'angel'", 'unknown factor; did you mean "angle"?'),
    ('y = "mse"', 'y = "msee"', "figures.mse.y = 'msee'", 'did you mean "mse"?'),
    ('hue = "bandwidth"', 'x_scale = "log"', "figures.mse.x = 'angle'", "is 0 in one of them and has no logarithm"),
    ('hue = "bandwidth"', 'hues = "bandwidth"', "figures.mse.hues = 'bandwidth'", 'did you mean "hue"?'),
    *(("[profiles.quick]", '[profiles.quick]\n[figures.best]\ntitle = "t"\nkind = "optimum"\ngrid = "angles"\ny = "mse"'
       f'\nx = "angle"\nover = "{over}"', f"figures.best.over = '{over}'", remedy)
      for over, remedy in (("bandwidth", "or more different values"), ("angle", "angle is x, hue or panel already"))),
    ("[profiles.quick]", '[profiles.quick]\n[claims.m]\nstatement = "s"\nkind = "optimum_slope"\ngrid = "angles"'
     '\nx = "angle"\nalong = "angle"\nvalue = 1\nmargin = 1', "claims.m.along = 'angle'", "angle is x, hue or panel"),
    ('hue = "bandwidth"', 'index = "vendi"', "figures.mse.index = 'vendi'", "unknown key; known: title"),
    ('x = "angle"\ny', 'kind = "lollipop"\ntarget = nan\ny', "figures.mse.target = nan", "be a finite number"),
    ('grid = "angles"\nmeasure', 'grid = "angels"\nmeasure', "claims.mse-falls.grid = 'angels'", 'mean "angles"?'),
    ('measure = "mse"', 'measure = "hdi"', "claims.mse-falls.index", "state index for measure"),
    ('measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = 3 }', "claims.mse-falls.where = {", "= 0.5 or 1.0"),
    ('measure = "mse"', 'measure = "mse"\nwhere = { regression = "sum" }', "claims.mse-falls.where = {", '= "ridge"'),
    ('measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = 0.5, bandwidth_rule = "fixed(value=1)" }',
     "claims.mse-falls.where = {", "but no cell has all of them"),
    ('measure = "mse"', 'measure = "mse"\nwhere = { bandwith = 0.5 }', "claims.mse-falls.where.bandwith = 0.5", "mean"),
    ('direction = "decreasing"', 'direction = "down"', "claims.mse-falls.direction = 'down'", "Input should be 'incr"),
    ('x = "angle"\nd', 'x = "angle"\nwhere = { angle = 45 }\nd', "claims.mse-falls.x", "two or more different values"),
    ('expected = "undecided"', 'expected = "supportd"', "claims.mse-falls.expected = 'supportd'", '"supported"?'),
    ('title = "A tiny study"', 'title = "a\\u001b[2J"', "study.title = ", "no control character; U+001B"),
    ('"The error falls."', '"a\\nb"', "claims.mse-falls.statement = ", "no control character; U+000A"),
    ('title = "Error against angle"', 'title = "\\u202egnp"', "figures.mse.title = ", "no control character; U+202E"),
    ('kind = "ridge"', 'kind = "ridge", label = "a\\u2028b"', "data.regression.label = ", "character; U+2028"),
    ('arrangement = "rotated"', 'arrangement = "file"\nfile = "a\\u0000b"', "heads.file = ", "character; U+0000"),
    ('measure = "mse"', 'measure = "regret"', "claims.mse-falls.measure = 'regret'", 'cells (heads); only ants have'),
    ('measure = "mse"', 'measure = "discrepancy"', "claims.mse-falls.measure = 'discrepancy'", "state reference"),
    ('measure = "mse"', 'measure = "bias_squared"', "claims.mse-falls.measure = 'bias_", 'mean "squared_bias"?'),
    ('measure = "mse"', 'measure = "colour"', "claims.mse-falls.measure = 'colour'", "use one of squared_bias"),
])  # fmt: skip
def test_mistake__is_one_line_that_names_the_entry(tmp_path, old, new, entry, remedy):
    message = mistakes(tmp_path, edited(DESIGN, old, new))
    told = message.removeprefix(f"{tmp_path / 'design.toml'}: ")
    assert told.startswith(entry) and remedy in told and message.isprintable(), message
    assert "instance of" not in told and "fields from" not in told


PAIRED = 'kind = "larger_than"\nwhere = { bandwidth = 0.5 }\nversus = '


@pytest.mark.parametrize("stated, expected", [
    ('kind = "monotone"\ndirection = "decreasing"\nx = "logits"', "mse-falls.x = 'logits': is not a number"),
    ('kind = "slope"\nscale = "log_x"\nvalue = 1\nmargin = 0.1\nx = "angle"', "mse-falls.x = 'angle': is 0 in"),
    ('kind = "slope"\nvalue = 1\nmargin = 0.1\nx = "angle"', ""),
    (PAIRED + "{ n_keys = 40 }", "may name factors only: logits, angle, bandwidth"),
    (PAIRED + "{ bandwidth = 0.5 }", "compares each selected cell with itself"),
    (PAIRED + "{ bandwidth = 1.0 }", ""),
])  # fmt: skip
def test_claim__fits_the_levels_of_its_grid(tmp_path, stated, expected):
    text = edited(varied(logits=["distance", "dot_product"]), 'x = "angle"\ndirection = "decreasing"\n', "")
    text = edited(text, 'kind = "monotone"', stated)
    assert expected in mistakes(tmp_path, text) if expected else loaded(tmp_path, text)


def test_profile__changes_a_grid_that_is_named_like_a_setting(tmp_path):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.noise.factors]").replace('"angles"', '"noise"')
    text += "\n[profiles.full.grids.noise]\nby_query = true\n[profiles.full.data]\nregression = { kind = 'linear' }"
    quick, full = (loaded(tmp_path, text, profile) for profile in ("quick", "full"))
    assert [(len(design.cells), design.cells[0].by_query) for design in (quick, full)] == [(6, False), (6, True)]
    # Negative control: a composite setting is replaced whole, not merged.
    assert full.cells[0].cell.coordinates["regression"] == "linear"


def test_bandwidth_rule__is_one_level_whatever_its_number(tmp_path):
    text = varied(bandwidth=[1.0, "attention"], head_dim=[1, 2])
    where = edited(text, 'measure = "mse"', 'measure = "mse"\nwhere = { bandwidth = "attention" }')
    cells = loaded(tmp_path, where).cells  # at head_dim = 1 both bandwidths are 1
    assert [level(planned.cell.coordinates, "bandwidth") for planned in cells] == [1.0, "attention"] * 6
    assert [selected(planned.cell.coordinates, {"bandwidth": 1.0}) for planned in cells] == [True, False] * 6
    assert [planned.cell.bandwidth for planned in (*cells[:2], *cells[6:8])] == [1.0, 1.0, 1.0, 2**0.25]
    assert "two or more different values" in mistakes(tmp_path, edited(text, 'x = "angle"\nd', 'x = "bandwidth"\nd'))


def test_work_of_reading__grows_like_the_number_of_cells_and_too_many_are_refused(tmp_path, monkeypatch):
    """Counted in calls, not in seconds: comparing every two cells would take four times as many for twice the cells."""
    angles, calls = [step / 200 for step in range(400)], []
    for count in (200, 400):
        path, profiler = write_design(tmp_path, varied(bandwidth=[0.5], angle=angles[:count])), cProfile.Profile()
        assert len(profiler.runcall(load_design, path).cells) == count
        calls.append(sum(entry.callcount for entry in profiler.getstats()))
    assert calls[1] < 2.2 * calls[0]
    monkeypatch.setattr(cells, "MAX_CELLS", 200)
    text = varied(bandwidth=[0.5], angle=angles[:150])
    assert len(loaded(tmp_path, text).cells) == 150
    text += f"\n[grids.more.factors]\nangle = {angles[:150]}"
    assert "factors = 150: brings the design to 300 cells, more than 200; use fewer values" in mistakes(tmp_path, text)


def test_identity__follows_numbers_not_labels_and_paths_and_that_of_data_is_what_it_was():
    cell, labels = minimal_cell(), ({}, {"label": "sin x"})
    plain, named = (minimal_cell(regression={"kind": "ridge"} | each) for each in labels)
    assert (plain.coordinates["regression"], named.coordinates["regression"]) == ("ridge", "sin x")
    assert plain.identity("a") == named.identity("a")
    own = [{"kind": "sum", "terms": [{"kind": "own", "path": f"{name}.py", "name": "m"}]} for name in "ab"]
    assert len({minimal_cell(regression=each).identity("a") for each in own}) == 1
    assert cell.identity("b") != cell.identity("a") == minimal_cell().identity("a")
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"seed": 8}, {"batch_size": 64}, {"noise_sd": 2.0}):
        assert minimal_cell(**change).identity("a") != cell.identity("a")
    # Drawn bits rest on it: these are the digests of two cells of shipped studies.
    ids = {each.cell.data_id for name in ("principal-angles", "universality") for each in load_design(name).cells}
    assert {"e4a18f3a863f4d7eab083d1de852c8c3", "66824d5583e20a06eb6cba3e262c7c6e"} <= ids
    assert "59f306e2cabce839b7c4f461c192f430" in ids


def test_measure_that_some_selected_cells_lack__is_refused_and_that_of_the_others_is_not(tmp_path):
    levels = {"learner": ["nadaraya_watson", "ant_colony"], "n_heads": [2, 3], "angle": None, "bandwidth": [0.5]}
    others = {"measure": "regret", "arrangement": "orthogonal", "noise_treatment": "drawn", "hue": "learner"}
    text = varied(**levels, **others).replace('x = "angle"', 'x = "n_heads"')
    assert "measure = 'regret': does not exist in 2 of 4 cells (heads); " in mistakes(tmp_path, text)
    ants = minimal_cell(learner={"kind": "ant_colony"}, noise_treatment="drawn").coordinates["learner"]
    where = f'measure = "regret"\nwhere = {{ learner = "{ants}" }}'
    assert loaded(tmp_path, edited(text, 'measure = "regret"', where)).claims["mse-falls"].measure == "regret"
    own = "[grids.angles.precision]\nrelative_mcse = { mse = 0.05 }\n[grids.angles.factors]"
    text = varied(relative_mcse={"discrepancy": 0.05})
    assert "precision.relative_mcse = 'discrepancy': does not exist in 6 of 6" in mistakes(tmp_path, text)
    loaded(tmp_path, edited(text, "[grids.angles.factors]", own))


@pytest.mark.parametrize("old, new, path", [
    ('y = "mse"', 'y = "{}"', "figures.mse.y"),
    ("relative_mcse = { mse = 0.05 }", "absolute_mcse = {{ {} = 0.05 }}", "precision.absolute_mcse"),
    ("[grids.angles.factors]", "[grids.angles.precision]\nrelative_mcse = {{ {} = 0.05 }}\n[grids.angles.factors]",
     "grids.angles.precision.relative_mcse"),
])  # fmt: skip
def test_measure_that_no_cell_has__is_neither_drawn_nor_wanted_to_some_error(tmp_path, old, new, path):
    lacked, indexed, alone = (edited(DESIGN, old, new.format(name)) for name in ("discrepancy", "hdi", "correlation"))
    loaded(tmp_path, alone)
    alone = varied(alone, n_heads=1, arrangement="haar", angle=None, n_keys=[20, 30, 40])
    alone = alone.replace('x = "angle"', 'x = "n_keys"')
    remedies = {lacked: "it needs a reference", indexed: "it is many numbers", alone: "it compares heads; use two"}
    for text, remedy in remedies.items():
        assert f"': does not exist in 6 of 6 cells (heads); {remedy}" in mistakes(tmp_path, text).partition(path)[2]
    # Where some cells have two heads the others have no point.
    loaded(tmp_path, edited(alone, "bandwidth = [0.5, 1.0]", "n_heads = [1, 2]").replace('"bandwidth"', '"n_heads"'))


T2, T4, T5 = ({"kind": "student_t", "df": df} for df in (2.2, 4.0, 5.0))
DRAWN, SUM = {"noise_treatment": "drawn"}, {"kind": "sum", "terms": ["linear", "quadratic"]}


@pytest.mark.parametrize("settings, refused", [
    ({"noise": T4}, []),  # integrated out
    ({"noise": T4, **DRAWN}, ["noise"]),
    ({"noise": T5, **DRAWN}, []),
    ({"noise": T4, "noise_sd": 0.0, **DRAWN}, []),
    ({"key_distribution": T2, "regression": "ridge"}, []),
    ({"key_distribution": T4, "regression": "linear"}, ["key_distribution"]),
    ({"key_distribution": T5, "regression": "linear"}, []),
    ({"key_distribution": T5, "regression": SUM}, ["key_distribution"]),
    ({"key_distribution": T4, "noise": {"kind": "heteroscedastic"}}, ["key_distribution"]),
], ids=str)  # fmt: skip
def test_tails_under_which_squared_errors_have_no_variance__are_refused(settings, refused):
    assert [setting for setting, _ in impossibilities(minimal_cell(**settings))] == refused


DESIGNS = Path(__file__).parents[2] / "designs"
SHIPPED = sorted([*DESIGNS.glob("*/design.toml"), *DESIGNS.glob("examples/*/design.toml")])


def of_another_seed(cell: Cell, read) -> Cell:
    return read(cell.with_simulation(seed=20261125).model_copy(update={"file_rows": None}))


def drawn_by_name(cell: Cell) -> dict[str, list[np.ndarray]]:
    """Everything that is there before replicates, by the name under which a verdict would tell of it."""
    if cell.functions is not None:
        return {}
    given, values = cell.queries.queries.kind != "held_out", overlap(cell)
    ignored = "arrangement" in cell.estimator.learner.ignores or cell.heads.redrawn
    return {
        "queries": [heads.query_points(cell)] if given else [],
        "heads": [*([] if ignored else projections_of(cell)), *([] if values is None else [values])],
        "held_out": [] if cell.file_rows is None else [cell.rows.points, cell.rows.targets],
    }


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda path: path.stem)
def shipped(request):
    return request.param, check(request.param, [*DESIGNS.glob("examples/*/functions.py")])


def test_shipped_designs__are_complete(shipped):
    path, profiles = shipped
    assert all(declared(each.text, name).figures == each.figures for name, each in profiles.items())
    if path.parents[1] == DESIGNS:
        assert {"quick", "full"} <= profiles.keys()
        assert all(each.study.name == path.parent.name and each.claims and each.figures for each in profiles.values())
        assert "unstated" not in {claim.origin for claim in profiles["quick"].claims.values()}
    for functions in {planned.cell.functions for planned in profiles["quick"].cells} - {None}:
        assert all(np.isfinite([*functions.theory(source).values()]).all() for source in ("exact", "leading"))


def test_what_another_seed_draws__is_named(shipped, monkeypatch):
    path, profiles = shipped
    design, read = profiles["quick"], partial(read_contents, folder=path.parent)
    kinds = {}  # of cells, as those that differ in numbers alone draw the same things
    for cell in (planned.cell for planned in design.cells):
        kind = [
            cell.heads.arrangement, cell.heads.query_projections, cell.heads.value_projections.kind,
            cell.queries.queries.kind, cell.estimator, cell.data.key_distribution, cell.data.regression.kind,
            cell.functions, cell.simulation.population,
        ]  # fmt: skip
        kinds.setdefault(repr(kind), cell)
    for cell in kinds.values():
        first, second = drawn_by_name(cell), drawn_by_name(of_another_seed(cell, read))
        changed = {name for name in first if any(not np.array_equal(*pair, equal_nan=True) for pair in zip(
            first[name], second[name], strict=True))}  # fmt: skip
        # A function of the user's own is given normals, whatever it makes of them.
        assert changed == cell.drawn - ({"heads"} if cell.heads.heads_function else set()), cell
        if cell.functions is None:
            # With all that has a name as it was, nothing else may be another.
            stream = heads._stream
            with monkeypatch.context() as patch:
                patch.setattr(heads, "_stream", lambda c, draw=0, of=cell, stream=stream: stream(of, draw))
                heads.query_points.cache_clear()  # those of the equal cell above are of its own stream
                pinned = of_another_seed(cell, read)
                rows = cell.in_batch(0).rows if cell.file_rows is not None else None
                pinned = pinned.model_copy(update={"file_rows": cell.file_rows})
                patch.setattr(Cell, "rows", property(lambda _, rows=rows: rows))
                assert all(map(np.array_equal, no_moments(cell), no_moments(pinned)))
    for name, claim in design.claims.items():
        draws = draws_of(claim, design.cells)
        cells = [each.cell for each in design.cells if each.grid == claim.grid]
        grid = PlannedGrid((), [each.coordinates for each in cells], cells)
        drawn = {part for cell in Reference("", claim, grid, grid.select(claim.where)).cells for part in cell.drawn}
        told = {"queries": "query point", "heads": "random head", "held_out": "held-out row"}
        assert all(told[part] in draws for part in drawn) or claim.measure == "hdi", name
