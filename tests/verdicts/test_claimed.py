"""Formulas that claims name: each has one function and its parameters, and gives the number known from elsewhere.

Also claims on formulas that no verdict could tell from what they deny.
"""

import inspect
from math import exp, isclose, log, sqrt

import pytest
from builders import DESIGN, edited, kinds_of, loaded, mistakes
from exact_estimates import claim, compare
from pydantic import ValidationError
from test_judge import cells, verdict
from test_optima import allocation, of

from simstudy.design.formulas import AnyFormula
from simstudy.verdicts.comparisons import FUNCTIONS, claimed
from simstudy.verdicts.paths import optimum_slopes
from simstudy.verdicts.predictions import powerless

RECORDS = kinds_of(AnyFormula)

GOLDEN = (1 + sqrt(5)) / 2
KNOWN = {
    "tuned_risk_ratio": ({"head_dim": 4, "power": 1}, 1.1547),  # the reciprocal of Epanechnikov's known efficiency
    "correlation_floor": ({"head_dim": 2, "bandwidth": 0.5}, 0.36),
    "query_averaged_heads": ({"n_heads": 4, "head_dim": 2, "bandwidth": 1.0}, 4 / (1 + 3 * 3 / 4 * 2 / 3)),
    "dot_product_floor": ({"length": 1.5}, exp(-(1.5**2))),
    "limiting_slope": ({"bandwidth": 1.0, "bias_rate": 0.5}, 1 / (0.5 + log(sqrt(2)))),  # L = B²/((B − 1)²(B + 2)B)^½
    "fibonacci_learners": ({"n_heads": 40}, GOLDEN**3),
    "geometric_learners": ({"n_heads": 60, "ratio": 0.5}, 3.0),
}


def test_every_formula__has_one_function_that_takes_its_parameters():
    assert set(FUNCTIONS) == set(RECORDS) == set(KNOWN)
    assert len(set(FUNCTIONS.values())) == len(FUNCTIONS)
    for name, record in RECORDS.items():
        accepted = inspect.signature(FUNCTIONS[name]).parameters
        stated = set(record.model_fields) - {"kind"}
        assert stated <= set(accepted)
        assert {key for key, parameter in accepted.items() if parameter.default is parameter.empty} <= stated


@pytest.mark.parametrize("name", KNOWN)
def test_formula__gives_the_known_number(name):
    parameters, number = KNOWN[name]
    value = claim(kind="equals", value={"kind": name, **parameters}, margin=1.0).value
    assert claimed(value) == pytest.approx(number, rel=2e-5)
    assert claimed(number) == number


def test_printed_number__has_the_margin_of_its_digits_and_is_told_with_its_source():
    stated = {"kind": "printed", "printed_in": "Silverman 1986", "statement": "It costs."}
    margins = {text: claim(value=text, **stated).margin for text in ("4", "4.2", "-0.236", "1.3125", "120")}
    assert margins == {"4": 0.5, "4.2": 0.05, "-0.236": 0.0005, "1.3125": 0.00005, "120": 0.5}
    (found, *_) = compare(claim(value="0.41", **stated), cells([0.4]), ("x",), None)
    assert (found.claimed, found.lower, found.upper) == pytest.approx((0.41, 0.405, 0.415))
    assert claim(value="0.41", **stated).words == ("It costs. Printed: 0.41, ± 0.005 by its digits (Silverman 1986).")
    for text in ("4/3", "1e3", ".2", "", "1.041 "):
        with pytest.raises(ValidationError, match="pattern"):
            claim(value=text, **stated)
    with pytest.raises(ValidationError, match="valid string"):
        claim(value=0.41, **stated)


@pytest.mark.parametrize(
    "entries",
    [{"kind": "equals", "margin": 0.1}, {"kind": "larger_than"}, {"kind": "slope", "x": "x", "margin": 0.1}],
    ids=lambda entries: entries["kind"],
)
def test_claim_with_a_formula__is_judged_as_with_its_number(entries):
    floor = {"kind": "correlation_floor", "head_dim": 2, "bandwidth": 0.5}
    means = [0.4, 0.76, 1.12]
    by_formula, by_number = (claim(value=value, **entries) for value in (floor, 0.36))
    found, expected = (list(compare(each, cells(means), ("x",), None)) for each in (by_formula, by_number))
    for one, other in zip(found, expected, strict=True):
        assert all(isclose(getattr(one, field), getattr(other, field)) for field in ("claimed", "lower", "upper"))
    assert verdict(by_formula, cells(means)) == verdict(by_number, cells(means))
    assert found != list(compare(claim(value=0.5, **entries), cells(means), ("x",), None))  # the control


def test_slope_of_an_optimum__may_be_a_formula():
    estimates, chosen = allocation(0.01, lambda n: 2.0)
    value = {"kind": "correlation_floor", "head_dim": 2, "bandwidth": 0.5}
    stated = claim(kind="optimum_slope", x="head_dim", along="n_keys", tune=("bandwidth",), margin=0.1, value=value)
    (comparison,) = optimum_slopes(stated, of(estimates, chosen))
    assert comparison.claimed == pytest.approx(0.36)
    assert (comparison.lower, comparison.upper) == (pytest.approx(0.26), pytest.approx(0.46))


CLAIM = """
[claims.floor]
statement = "It is the floor."
kind = "equals"
grid = "angles"
measure = "correlation"
value = { kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }
margin = 0.1
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"correlation_floor"', '"corelation_flor"', 'unknown kind; did you mean "correlation_floor"?'),
        ('"correlation_floor"', '"xyz"', "unknown kind; known: tuned_risk_ratio, "),
        (", bandwidth = 0.5 }", " }", "claims.floor.value.bandwidth: missing"),
        ("bandwidth = 0.5 }", "bandwidth = -1.0 }", "claims.floor.value.bandwidth = -1.0: must be greater"),
        ("bandwidth = 0.5 }", "bandwidth = 0.5, power = 2 }", "claims.floor.value.power = 2: unknown key"),
        ('kind = "correlation_floor", ', "", "claims.floor.value"),
        ("value = {", "value = 'a' #", "claims.floor.value = 'a': must be a valid number"),
    ],
)
def test_formula_that_is_none__is_refused(tmp_path, old, new, message):
    told = mistakes(tmp_path, edited(DESIGN, "[figures.mse]", edited(CLAIM, old, new) + "\n[figures.mse]"))
    assert message in told and len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("equivalent = 0.1", "claims.floor.equivalent = 0.1: is for numbers with a Monte Carlo error; state"),
        ('x = "angle"\nversus = { bandwidth = 1.0 }', "claims.floor.x = 'angle': is the factor of a slope"),
    ],
)
def test_printed_number_with_entries_that_mean_nothing__is_refused(tmp_path, entries, message):
    printed = CLAIM[: CLAIM.index('kind = "equals"')] + CLAIM[CLAIM.index("grid =") : CLAIM.index("value =")]
    printed += f'kind = "printed"\nvalue = "0.4"\nprinted_in = "s"\n{entries}\n'
    assert message in mistakes(tmp_path, edited(DESIGN, "[figures.mse]", printed + "\n[figures.mse]"))


FLOOR = """
[claims.floor]
statement = "The correlation of orthogonal heads is the floor."
kind = "equals"
grid = "angles"
where = { angle = 90, bandwidth = 0.5 }
measure = "correlation"
value = { kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }
margin = 0.05
"""


FORMULA = '{ kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }'
LARGER = FLOOR.replace("equals", "larger_than").replace(FORMULA, "0.3").replace("margin = 0.05\n", "")
THEORY = FLOOR.replace("equals", "agrees_with_theory").replace(f"value = {FORMULA}\n", "").replace("= 90,", "= 45,")
EXACT, LEADING = THEORY + 'source = "exact"\n', THEORY.replace("0.05", "0.0001")


@pytest.mark.parametrize(
    ("claim", "note"),
    [
        (FLOOR + "excludes = 0.0\n", ""),
        (FLOOR + "excludes = 0.4\n", "margin = 0.05 reaches the alternative 0.4, 0.04 from 0.36"),
        (FLOOR, "state in excludes what would be found if it were wrong"),
        (FLOOR.replace(FORMULA, "0.36"), ""),
        (LARGER + "excludes = 0.2\n", ""),
        (LARGER + "excludes = 0.3\n", "excludes = 0.3: is not below value = 0.3"),
        (EXACT + "excludes = 1.2\n", "margin = 0.05 reaches leading order, at most 0.0"),
        (EXACT.replace("0.05", "0.0001") + "excludes = 1.2\n", ""),
        (EXACT.replace("0.05", "0.0001") + "excludes = 1.00005\n", "reaches the alternative 1.00005"),
        (THEORY, ""),
        (LEADING, "from leading order, beyond margin = 0.0001; raise n_keys"),
        (LEADING + 'expected = "contradicted"\n', ""),
    ],
)
def test_claim_that_its_alternative_does_not_contradict__is_noted(tmp_path, claim, note):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.angles]\nexact = true\n[grids.angles.factors]")
    text = edited(edited(text, "n_keys = 40", "n_keys = 400"), "\n[figures.mse]", f"{claim}\n[figures.mse]")
    found = list(powerless(loaded(tmp_path, text)))
    assert len(found) == bool(note) and all(each.startswith("claims.floor") and note in each for each in found)
