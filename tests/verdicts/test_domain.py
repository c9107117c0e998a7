"""Claims on a domain: settings are drawn from it, anew with another text; every one counts, or their mean."""

import io
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, mistakes, run, write_design
from exact_estimates import account, claim
from rich.console import Console

from simstudy.design.document import LEVEL, Law
from simstudy.design.load import load_design
from simstudy.report.tables import verdict_frame, verdict_lines, verdict_table
from simstudy.verdicts.judge import averaged, decide, judge_claim, selected_by

DOMAIN = """[grids.angles.domain]
n_keys = { log_uniform = [20, 60] }
bandwidth = { uniform = [0.5, 1.0] }
[grids.angles.factors]
angle = [0, 45, 90]"""
TEXT = edited(DESIGN, "[grids.angles.factors]\nangle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", DOMAIN)
TEXT = edited(edited(TEXT, 'hue = "bandwidth"\n', ""), "max_replicates = 512", "max_replicates = 128")


def settings(design) -> list[tuple]:
    cells = [each.cell for each in design.cells]
    return [(c.data.n_keys, c.coordinates["bandwidth"], c.heads.angle, c.simulation.seed) for c in cells]


def test_settings__are_as_many_as_asked_for_and_drawn_anew_with_another_text(tmp_path):
    path = write_design(tmp_path, TEXT)
    ways = [load_design(path), load_design(path), *(load_design(path, confirm=text) for text in ("a", "a", "b"))]
    plain, again, first, same, other = (settings(each) for each in ways)
    assert plain == again and first == same and not {*plain} & {*first} and not {*first} & {*other}
    for cells in (plain, first, other):
        assert len(cells) == 48 and len({(n, b, seed) for n, b, _, seed in cells}) == 16
        assert all(20 <= n <= 60 and 0.5 <= b <= 1.0 for n, b, _, _ in cells)
        assert len({seed for *_, seed in cells}) == 16
    fewer = edited(TEXT, "[grids.angles.domain]", "[grids.angles]\ncells = 5\n[grids.angles.domain]")
    assert len(loaded(tmp_path, fewer).cells) == 15


def test_law__covers_its_ends_and_nothing_else():
    rng = np.random.default_rng(0)
    whole, logarithmic = ([Law(**{law: [1, 4]}).draw(rng) for _ in range(4000)] for law in ("uniform", "log_uniform"))
    for drawn, shares in ((whole, np.full(4, 0.25)), (logarithmic, np.diff(np.log([1, 2, 3, 4, 5])) / np.log(5))):
        counts = np.bincount(drawn, minlength=5)
        assert counts[0] == 0 and np.abs(counts[1:] / 4000 - shares).max() < 0.03
    real = np.array([Law(log_uniform=[0.01, 1.0]).draw(rng) for _ in range(4000)])
    assert real.min() >= 0.01 and real.max() <= 1.0 and np.mean(real < 0.1) == pytest.approx(0.5, abs=0.03)
    assert {Law(one_of={"range": [1, 3]}).draw(rng) for _ in range(50)} == {1, 2}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[20, 60]", "[60, 20]", "grids.angles.domain.n_keys.log_uniform = [60, 20]: must be two numbers, [lowest"),
        ("[20, 60]", "[0, 60]", "must be positive, as it has a logarithm"),
        ("{ log_uniform = [20, 60] }", "{}", "domain.n_keys = {}: must have one entry: uniform, log_uniform or one_of"),
        ("n_keys = {", "n_kys = {", 'unknown key; did you mean "n_keys"?'),
        ("n_keys = {", "angle = {", "grids.angles.domain.angle: also a factor or setting of the grid"),
        ("{ log_uniform = [20, 60] }\nbandwidth = { uniform = [0.5, 1.0] }", "{ uniform = [20, 22] }",
         "only 3 different settings of the domain are possible; widen it"),
        ("{ uniform = [0.5, 1.0] }", "{ one_of = [-1.0] }", "grids.angles.domain.bandwidth = -1.0: Input should be"),
        ("{ uniform = [0.5, 1.0] }", "{ uniform = [-2.0, -1.0] }", "grids.angles.domain.bandwidth = -1."),
    ],
)  # fmt: skip
def test_domain_that_is_none__is_told_in_a_line(tmp_path, old, new, said):
    assert said in mistakes(tmp_path, edited(TEXT, old, new))
    alone = mistakes(tmp_path, edited(DESIGN, 'kind = "monotone"', 'kind = "monotone"\nholds = "on_average"'))
    assert "claims.mse-falls.holds = 'on_average': needs a domain, and a kind of claim" in alone


def test_claim_for_all__is_supported_if_it_holds_in_every_setting_and_contradicted_by_one(tmp_path, tiny):
    """Orthogonal heads of a variance below 1 everywhere; and below what half of the settings have."""
    both = "".join(
        f'[claims.{name}]\nstatement = "s"\nkind = "equals"\ngrid = "angles"\nmeasure = "ensemble_variance"\n'
        f"value = 0.0\nmargin = {margin}\n"
        for name, margin in (("true", 9.0), ("false", 0.05))
    )
    results = run(write_design(tmp_path, edited(TEXT, "[figures.mse]", both + "[figures.mse]")), output=tmp_path)
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
    signs = np.tile([1.0, -1.0], 32) / 8.0
    accounts = [
        account({"n": float(k), "angle": angle}, value + angle, mcse * signs, seed=k)
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
    alike = judged(np.zeros(16), 0.0, kind="equals", value=0.0, margin=0.1, where={"angle": 0.0})
    assert alike.verdict == "undecided"


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_mean_over_16_settings__is_wrong_no_more_often_than_the_level_says(law):
    draws = getattr(np.random.default_rng(2), law)(size=(300, 16))
    truth, wrong = {"exponential": 1.0, "lognormal": np.exp(0.5)}[law], 0
    for row, sign in itertools.product(draws, (1.0, -1.0)):
        bound = {"lower": sign * truth, "upper": np.inf, "claimed": sign * truth}
        settings = [SimpleNamespace(statistic="mse", estimate=sign * each, mcse=0.0, cells=(), **bound) for each in row]
        wrong += decide([*averaged(settings)], LEVEL).verdict == "supported"
    assert wrong / 600 < LEVEL
