"""Claims that are open, on which replicates are spent, and claims on a domain, from which settings are drawn anew."""

import io
import itertools
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, loaded, mistakes, run, varied, write_design
from exact_estimates import N_BLOCKS, account, claim, exact_accounts
from rich.console import Console
from stored import remove, rows

from simstudy.design.document import LEVEL, Distribution, Grid
from simstudy.design.load import load_design
from simstudy.report.tables import verdict_frame, verdict_lines, verdict_table
from simstudy.verdicts.evidence import anytime_score, normal_score, students_of
from simstudy.verdicts.judge import averaged, decide, judge_claim, selected_by, wanted_by_claims

DONE, CEILING, PER_BATCH, FLOOR = 4, 1000, 256, 512
DOMAIN = """[grids.angles.domain]
n_keys = { log_uniform = [20, 60] }
bandwidth = { uniform = [0.5, 1.0] }
[grids.angles.factors]
angle = [0, 45, 90]"""
TEXT = edited(DESIGN, "[grids.angles.factors]\nangle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", DOMAIN)
TEXT = varied(TEXT, hue=None, max_replicates=128)


def accounts_of(values: list[float], grid: str = "g", stop: str = "verdict") -> list:
    made = exact_accounts([{"x": 0.0}, {"x": 1.0}][: len(values)], values, 1.0)
    for each in made:
        each.done = each.target = DONE
        each.planned.grid, each.batch_size = grid, PER_BATCH
        each.planned.precision = SimpleNamespace(stop=stop, max_replicates=CEILING * PER_BATCH)
    return made


def wanted(accounts: list, **claims) -> list[int]:
    factors = {"g": ("x",), "other": ("x",)}
    study = SimpleNamespace(claims=claims, factors=factors, grids=dict.fromkeys(factors, Grid()))
    return wanted_by_claims(study, {}, accounts)


def target(excess: float, level: float = LEVEL, done: int = DONE) -> int:
    """Batches after which an excess over a bound, now of so many MCSE, would be at the bound of its interval."""
    return int(np.ceil(done * (anytime_score(level, N_BLOCKS) / float(normal_score(excess, N_BLOCKS - 1))) ** 2))


def test_open_claim__wants_what_brings_its_score_to_a_verdict():
    accounts = accounts_of([2.0, -1.5])
    above = {cell: claim(kind="larger_than", where={"x": float(cell)}) for cell in (0, 1)}
    assert wanted(accounts, a=above[0]) == [target(2.0), DONE]
    assert wanted(accounts, b=above[1]) == [DONE, target(1.5)]  # which may be contradicted
    # Each of three claims has a third of the level, and a cell has what the one that wants most of it wants.
    likely = claim(kind="larger_than", value=-0.5, where={"x": 0.0})
    for order in ((above[0], likely, above[1]), (likely, above[0], above[1])):
        found = wanted(accounts, **dict(zip("abc", order, strict=True)))
        assert found == [target(2.0, LEVEL / 3), target(1.5, LEVEL / 3)]


def test_comparison_that_is_proven__wants_nothing_nor_a_claim_with_a_verdict_and_an_open_one_a_batch_at_least():
    stated = claim(kind="larger_than")
    assert wanted(accounts_of([2.0, 9.0]), a=stated) == [target(2.0), DONE]
    assert wanted(accounts_of([8.0, 9.0]), a=stated) == [DONE, DONE]  # supported
    assert wanted(accounts_of([-9.0, 1.0]), a=stated) == [DONE, DONE]  # contradicted: nothing else matters
    assert wanted(accounts_of([2.0]), a=stated) == [target(2.0)]
    almost = float(students_of(anytime_score(LEVEL, N_BLOCKS), 0.0, N_BLOCKS - 1)) * (1 - 1e-9)
    assert wanted(accounts_of([almost]), a=stated) == [DONE + 1]


def test_cells_of_a_comparison__are_extended_together_up_to_the_ceiling_of_each():
    """Also those that stopped at different numbers: kept apart, they would have ever fewer blocks in common."""
    step = claim(kind="monotone", x="x", direction="increasing")
    accounts = accounts_of([0.0, 2.0 * 2**0.5])
    accounts[1].done = accounts[1].target = 6
    assert wanted(accounts, a=step) == [6, 6]
    accounts[0].done = accounts[0].target = 6
    accounts[1].performance.n_blocks = 1000 * N_BLOCKS  # the error is that of the cell with fewer blocks
    assert wanted(accounts, a=step) == [target(2.0, done=6)] * 2
    accounts[0].planned.precision.max_replicates = 7 * PER_BATCH
    assert wanted(accounts, a=step) == [7, target(2.0, done=6)]


def test_theory__counts_with_its_error_and_cells_without_a_measure_want_more(monkeypatch):
    def predict(planned, told):
        return [{"exact": SimpleNamespace(measures={"mse": 8.0}, errors={"mse": error})} for _ in planned]

    monkeypatch.setattr("simstudy.verdicts.predictions.predict", predict)
    stated = claim(kind="agrees_with_theory", source="exact", margin=0.25)
    for error in (0.0, 1.0):
        assert wanted(accounts_of([8.0]), a=stated) == [target(2.0 / (1.0 + error) ** 0.5)]
    accounts = [*accounts_of([2.0, 2.0], "other", stop="precision"), *accounts_of([2.0, 2.0])]
    accounts[2].performance = None
    both = {"a": claim(kind="larger_than", grid="other"), "b": claim(kind="larger_than")}
    assert wanted(accounts, **both) == [DONE, DONE, CEILING, target(2.0, LEVEL / 2)]


def design_of(threshold: float, stop: str = "verdict", ceiling: int = 8192):
    spent = {"stop": stop, "mse": 0.01, "min_replicates": FLOOR, "max_replicates": ceiling}
    text = varied(batch_size=128, control="none", **spent)  # fewer files for as many replicates
    tables, of = tomllib.loads(text), {"grid": "angles", "measure": "mse"}
    sure = {"kind": "equals", "statement": "The error is small.", "where": {"bandwidth": 0.5}, "value": 0.0}
    more = {"kind": "larger_than", "statement": "The error falls by more than it does.", "value": threshold}
    more |= {"where": {"bandwidth": 1.0, "angle": 0}, "versus": {"angle": 90}}
    return load_design(tables | {"claims": {"sure": sure | of | {"margin": 9.0}, "open": more | of}})


@pytest.fixture(scope="module")
def near(tmp_path_factory) -> float:
    found = run(design_of(0.0), output=tmp_path_factory.mktemp("floor"), executor="serial").sel(claim="open")
    return float(found.verdict_estimate - found.verdict_mcse)


@pytest.fixture(scope="module")
def first(tmp_path_factory, near):
    folder = tmp_path_factory.mktemp("first")
    return folder, run(design_of(near), output=folder, executor="serial")


def used(results: xr.Dataset) -> dict[tuple[float, float], int]:
    return results.n_replicates.to_dataframe().set_index(["angle", "bandwidth"]).n_replicates.to_dict()


def test_replicates__are_spent_on_the_cells_of_an_open_claim_alone(first):
    results, spent = first[1], used(first[1])
    assert {spent[cell] for cell in spent.keys() - {(0.0, 1.0), (90.0, 1.0)}} == {FLOOR}
    assert FLOOR < spent[0.0, 1.0] == spent[90.0, 1.0] <= 8192
    assert results.verdict.sel(claim="sure") == "supported"
    # Every look is in the results: the last is at what was spent, and none at more.
    looks, counts = results.look_replicates.values, results.n_looks.values
    assert [row[count - 1] for row, count in zip(looks, counts, strict=True)] == results.n_replicates.values.tolist()
    assert (np.diff(looks, axis=1)[looks[:, 1:] > 0] > 0).all() and counts.max() == looks.shape[1] > counts.min() == 1


def test_decided_claims__want_nothing_beyond_the_floor_and_precision_may_be_asked_for_beside(tmp_path, near):
    stops = ("verdict", "both", "precision")
    runs = (run(design_of(near - 1.0, stop), output=tmp_path / stop, executor="serial") for stop in stops)
    results, both, alone = runs
    assert set(used(results).values()) == {FLOOR} and set(results.verdict.values) == {"supported"}
    assert results.precision_reached.all()  # none was asked for
    assert used(both) == used(alone) and max(used(alone).values()) > FLOOR


def test_cells_that_were_folded_and_others__are_judged_again_as_before(tmp_path):
    waiting = {"relative_mcse": None, "stop": "verdict", "max_replicates": 2048, "direction": "increasing"}
    design = loaded(tmp_path, varied(angle=[0, 20, 45, 70, 90], seed=22, control="none", **waiting))
    results = run(design, output=tmp_path, executor="serial")
    (tmp_path / "tiny" / "quick" / ".status.json").unlink()
    assert run(design, output=tmp_path, executor="serial").equals(results)
    assert results.n_batches.min() <= 8 < results.n_batches.max()


def test_looks__are_the_same_whatever_interrupts_and_on_any_executor(tmp_path, first, near):
    folder, results = first
    study = folder / "tiny" / "quick"
    for name in sorted(rows(study))[::3]:
        remove(study, name)
    for where, how in ((folder, {"executor": "serial"}), (tmp_path, {"executor": "threads", "workers": 2})):
        xr.testing.assert_equal(results, run(design_of(near), output=where, **how))


def settings(design) -> list[tuple]:
    cells = [each.cell for each in design.cells]
    return [(c.data.n_keys, c.coordinates["bandwidth"], c.heads.angle, c.simulation.seed) for c in cells]


def test_settings__are_as_many_as_asked_for_and_drawn_anew_with_another_text(tmp_path):
    path = write_design(tmp_path, TEXT)
    ways = [load_design(path), load_design(path), *(load_design(path, confirm=text) for text in ("a", "a", "b"))]
    plain, again, first, same, other = (settings(each) for each in ways)
    assert plain == again and first == same and not {*plain} & {*first} and not {*first} & {*other}
    for cells in (plain, first, other):
        assert len(cells) == 48 and len({(n, b, seed) for n, b, _, seed in cells}) == len({c[3] for c in cells}) == 16
        assert all(20 <= n <= 60 and 0.5 <= b <= 1.0 for n, b, _, _ in cells)
    fewer = edited(TEXT, "[grids.angles.domain]", "[grids.angles]\ncells = 5\n[grids.angles.domain]")
    assert len(loaded(tmp_path, fewer).cells) == 15
    loaded(tmp_path, TEXT + "[profiles.full.grids.angles]\ndomain.n_keys = { uniform = [20, 60] }", "full")  # in whole


def test_law__covers_its_ends_and_nothing_else():
    rng = np.random.default_rng(0)
    logarithms = np.diff(np.log([1, 2, 3, 4, 5])) / np.log(5)
    for law, ends, shares in (("uniform", [-2, 1], [0.25] * 4), ("log_uniform", [1, 4], logarithms)):
        levels, counts = np.unique([Distribution(**{law: ends}).draw(rng) for _ in range(4000)], return_counts=True)
        assert [*levels[[0, -1]]] == ends and np.abs(counts / 4000 - shares).max() < 0.03
    real = np.array([Distribution(log_uniform=[0.01, 1.0]).draw(rng) for _ in range(4000)])
    assert real.min() >= 0.01 and real.max() <= 1.0 and np.mean(real < 0.1) == pytest.approx(0.5, abs=0.03)
    assert {Distribution(uniform=[0.12344, 0.12346]).draw(rng) for _ in range(50)} == {0.12344, 0.12346}  # four digits
    assert {Distribution(one_of={"range": [1, 3]}).draw(rng) for _ in range(50)} == {1, 2}


@pytest.mark.parametrize("old, new, said", [
    ("[20, 60]", "[60, 20]", "grids.angles.domain.n_keys.log_uniform = [60, 20]: must be two numbers, [lowest"),
    ("[20, 60]", "[0, 60]", "must be positive, as it has a logarithm"),
    ("{ log_uniform = [20, 60] }", "{}", "domain.n_keys = {}: must have one entry: uniform, log_uniform or one_of"),
    ("n_keys = {", "n_kys = {", 'unknown key; did you mean "n_keys"?'),
    ("n_keys = {", "angle = {", "grids.angles.domain.angle: also a factor or setting of the grid"),
    ("{ log_uniform = [20, 60] }\nbandwidth = { uniform = [0.5, 1.0] }", "{ uniform = [20, 22] }",
     "only 3 different settings of the domain are possible; widen it"),
    ("{ uniform = [0.5, 1.0] }", "{ one_of = [-1.0] }", "grids.angles.domain.bandwidth = -1.0: Input should be"),
    ("{ uniform = [0.5, 1.0] }", "{ uniform = [-2.0, -1.0] }", "grids.angles.domain.bandwidth = -1."),
    ("[grids.angles.domain]", "[grids.angles.settings]\nnoise_sd = -1\n[grids.angles.domain]", "settings.noise_sd = -"),
    ("seed = 7", "seed = 2026-11-30", "simulation.seed = datetime.date(2026, 11, 30): Input should be a valid int"),
])  # fmt: skip
def test_domain_that_is_none__is_told_in_a_line(tmp_path, old, new, said):
    assert said in mistakes(tmp_path, edited(TEXT, old, new))
    alone = mistakes(tmp_path, edited(DESIGN, 'kind = "monotone"', 'kind = "monotone"\nholds = "on_average"'))
    assert "claims.mse-falls.holds = 'on_average': needs a domain, and a kind of claim" in alone


def test_claim_for_all__is_supported_if_it_holds_in_every_setting_and_contradicted_by_one(tmp_path, tiny):
    claim = {"statement": "s", "kind": "equals", "grid": "angles", "measure": "ensemble_variance", "value": 0.0}
    tables = tomllib.loads(TEXT)
    tables["claims"] |= {"true": claim | {"margin": 9.0}, "false": claim | {"margin": 0.05}}
    results = run(tables, output=tmp_path)
    verdicts = results.verdict.to_series()
    assert (verdicts["true"], verdicts["false"]) == ("supported", "contradicted")
    assert 0.1 < (results.ensemble_variance.sel(source="empirical").values < 0.05).mean() < 0.9
    drawn = "in each of 16 settings drawn with n_keys from 20 to 60 (uniform in the logarithm), bandwidth from 0.5 to 1"
    for found, words in ((results, drawn), (tiny.results, "at these settings, ")):
        line, row = verdict_lines(found)[0], verdict_frame(found).iloc[0]
        assert line.verdict_draws.startswith(words) and row.verdict_draws.startswith(words)
        table = Console(file=io.StringIO(), width=400)
        table.print(verdict_table([line]))
        assert words in table.file.getvalue()


def judged(values, mcse: float, **entries):
    """The verdict on a mean over settings, each with two levels of a factor."""
    accounts = [
        account({"n": float(k), "angle": angle}, value + angle, mcse * np.tile([1.0, -1.0], 32) / 8.0, seed=k)
        for k, value in enumerate(values)
        for angle in (0.0, 90.0)
    ]
    stated = claim(holds="on_average", **entries)
    return judge_claim(stated, selected_by(stated, accounts, ("n", "angle"))._replace(drawn=("n",)), 1)


def test_mean_over_a_domain__has_the_spread_between_settings_as_its_error():
    values = np.random.default_rng(1).normal(1.0, 0.2, 16)
    found = judged(values, 1e-6, kind="larger_than")
    names = [f"mean over 16 settings of mse at angle = {angle}" for angle in (0, 90)]
    assert [each.statistic for each in found.comparisons] == names
    assert found.comparisons[0].estimate == pytest.approx(values.mean())
    assert found.comparisons[0].mcse == pytest.approx(values.std(ddof=1) / 4.0)
    assert found.verdict == "supported" and found.comparisons[0].cells == ()  # replicates are no remedy
    assert len(judged(values, 1.0, kind="larger_than").comparisons[0].cells) == 16
    assert judged(values, 1e-6, kind="larger_than", value=values.mean()).verdict == "undecided"
    assert judged(values, 1e-6, kind="larger_than", value=3.0).verdict == "contradicted"
    paired = judged(values, 1e-6, kind="equals", value=90.0, margin=1e-3, where={"angle": 90.0}, versus={"angle": 0.0})
    (step,) = paired.comparisons
    assert step.statistic == "mean over 16 settings of mse at angle = 90 minus angle = 0"
    assert judged(values[:15], 1e-6, kind="larger_than").decisive.reason.startswith("15 blocks of replicates or draws")
    # Settings that are all alike do not prove that the domain is.
    assert judged(np.zeros(16), 0.0, kind="equals", value=0.0, margin=0.1, where={"angle": 0.0}).verdict == "undecided"


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_mean_over_16_settings__is_wrong_no_more_often_than_the_level_says_and_its_printed_error_covers(law):
    draws = getattr(np.random.default_rng(2), law)(size=(300, 16))
    truth, wrong = {"exponential": 1.0, "lognormal": np.exp(0.5)}[law], np.zeros(2)
    for row, sign in itertools.product(draws, (1.0, -1.0)):
        bound = {"lower": sign * truth, "upper": np.inf, "claimed": sign * truth}
        settings = [SimpleNamespace(statistic="mse", estimate=sign * each, mcse=0.0, cells=(), **bound) for each in row]
        (mean,) = averaged(settings)
        covered = abs(mean.estimate - sign * truth) <= 1.96 * mean.mcse * mean.widening
        wrong += decide([mean], LEVEL).verdict == "supported", not covered
    assert (wrong / 600 < [LEVEL, 0.1]).all()
