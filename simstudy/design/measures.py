"""Registry of all variables in results: dimensions, unit, meaning, formula.

``results.nc`` holds variables of the same size in every cell.  ``details.nc`` holds those whose size differs (blocks of
replicates, heads, pairs of heads, query points), in the contiguous ragged layout of the CF conventions: the rows of all
cells one after another, and the number of rows of each cell.
"""

import functools
import json
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from simstudy.design.settings.cell import TABLE_OF, TABLES, Cell
from simstudy.design.settings.records import records_in
from simstudy.errors import UserError
from simstudy.formulas import CATALOGUE

if TYPE_CHECKING:
    import xarray as xr

SOURCES = ("empirical", "exact", "leading")
"""Monte Carlo estimates, theory for any n, and theory at leading order in n."""
THEORIES = SOURCES[1:]
IndexName = Literal[
    "chordal", "participation", "entropy", "logdet", "volume", "vendi", "min_angle", "output", "output_rank",
    "output_determinant", "output_participation", "disagreement_values", "disagreement_positions",
    "disagreement_outputs",
]  # fmt: skip
INDICES = get_args(IndexName)
ATTRIBUTES = (
    "study", "profile", "title", "aim", "design", "design_hash", "factors", "seed", "engine", "simstudy_version",
    "commit", "libraries", "missing_values", "run", "confirmation_text", "confirmation_digest", "data", "measures",
)  # fmt: skip
"""Global attributes of the results of a study."""


@functools.cache
def setting(name: str) -> tuple[str, ...]:
    """Return words, symbol and unit of a setting or parameter (``normaliser.power``), from the title of its field."""
    own, _, parameter = name.partition(".")
    fields = [TABLES[TABLE_OF[own]].model_fields[own]] if own in TABLE_OF else []
    records = [record.model_fields for each in fields for record in records_in(each.annotation)]
    fields = [each[parameter] for each in records if parameter in each] if parameter else fields
    titles = [each.title for each in fields if each.title] or [re.sub("[._]", " ", name)]
    return (*(part.strip() for part in titles[0].split("|")), "", "")[:3]


class Variable(NamedTuple):
    """Description of one labelled variable."""

    dims: tuple[str, ...]
    unit: str
    meaning: str
    formula: str = ""


_CATALOGUE = """
[measures: source cell]
squared_bias | Y^2 | squared bias of the ensemble, averaged over queries; estimated without bias, so it may be slightly
    negative | mean_q (E f(x_q) - m(x_q))^2
mean_squared_bias | Y^2 | squared bias of one head, averaged over heads and queries; estimated without bias | mean_q
    mean_h (E f_h(x_q) - m(x_q))^2
mean_variance | Y^2 | variance of one head across simulated data sets, averaged over heads and queries | mean_q mean_h
    Var f_h(x_q)
mean_covariance | Y^2 | covariance of two different heads across data sets, averaged over pairs and queries | mean_q
    mean_{h!=g} Cov(f_h(x_q), f_g(x_q))
ensemble_variance | Y^2 | variance of the combined estimate, averaged over queries | mean_q a' C(x_q) a
mse | Y^2 | mean squared error of the combined estimate, averaged over queries | squared_bias + ensemble_variance
ambiguity | Y^2 | squared difference of a head from the uniform average of all, averaged over heads, data sets and
    queries: the gain of the average over its heads | mean_squared_bias + mean_variance - mse of the uniform average
correlation | 1 | correlation of two different heads across data sets at a fixed query, averaged over pairs and queries
    | mean_q mean_{h!=g} C_hg / sqrt(C_hh C_gg)
effective_heads | 1 | number of uncorrelated heads that would average to the same variance | mean_variance /
    (mean_variance / H + (1 - 1/H) mean_covariance)
[statistics: source cell]
direct_mse | Y^2 | mean squared error of the uniform average, averaged over replicates and queries without the
    decomposition | mean_r mean_q (mean_h f_h(x_q) - m(x_q))^2, noise integrated out where it is
query_correlation | 1 | correlation of two different heads over query points in one replicate, averaged over pairs and
    replicates; not the correlation across data sets | mean_r mean_{h!=g} corr_q(f_h(x_q), f_g(x_q))
discrepancy | 1 | difference between the combined estimate and the reference computation, relative to the size of the
    latter, averaged over replicates | mean_r sqrt(mean_q (f - f_ref)^2 / mean_q f_ref^2)
regret | Y | quality of the best site minus that of the sites that ants visit, averaged over ants, steps and
    replicates | mean_r mean_at (max_k Q_k - Q_site(r,a,t))
failure_rate | 1 | share of replicates without a defined estimate, which enter no other measure; its Monte Carlo
    standard error is never below that of Agresti and Coull | n_failed / (n_replicates + n_failed)
decomposition_gap | 1 | relative difference of the bias-variance-covariance decomposition of the uniform average from
    its mean squared error | (b^2 + V/H + (1 - 1/H) C) / direct_mse - 1
ambiguity_gap | 1 | relative difference of the ambiguity decomposition of the uniform average from its mean squared
    error | (mean_squared_bias + mean_variance - ambiguity) / direct_mse - 1
correlation_gap | 1 | decomposition_gap with the mean variance times the correlation as covariance | (b^2 + V/H +
    (1 - 1/H) correlation V) / direct_mse - 1
query_correlation_gap | 1 | decomposition_gap with the mean variance times query_correlation as covariance | (b^2 +
    V/H + (1 - 1/H) query_correlation V) / direct_mse - 1
equivalent_heads | 1 | number of heads whose uniform average would have the variance of the combined estimate, at the
    same mean variance and covariance | (mean_variance - mean_covariance) / (ensemble_variance - mean_covariance)
linear_predictability | 1 | share of the variance of a head's estimate across data sets that the best linear combination
    of the other heads' explains (squared multiple correlation), averaged over heads; from covariances averaged over
    queries | mean_h 1 - 1 / (C_hh (C^-1)_hh)
[indexed_measures: cell index]
hdi | see index | head diversity indices: `output` indices from the estimates; `disagreement` indices, regularisers of
    Li et al. (2018), minus the mean over all pairs of heads, a head with itself included, of the cosine of value
    transformations, of the overlap of attention (noise of one variance, integrated out), or of the cosine of outputs
    across data sets and queries; others from the projections |
    disagreement: -mean_hg of tr(A_h'A_g) / (|A_h| |A_g|); E mean_q sum_i w_hi w_gi; mean_q E f_h f_g / sqrt(mean_q E
    f_h^2 mean_q E f_g^2)
[head_measures: head]
head_squared_bias | Y^2 | squared bias of each head, averaged over queries; estimated without bias | mean_q (E f_h(x_q)
    - m(x_q))^2
combination_weight | 1 | weight of each head, with a Monte Carlo error where it follows from estimated errors | a_h
[pair_measures: pair]
head_covariance | Y^2 | covariance of heads across data sets, averaged over queries; variances on the diagonal | mean_q
    Cov(f_i(x_q), f_j(x_q))
head_error_moment | Y^2 | second moment of head errors, averaged over queries; mean squared errors on the diagonal |
    mean_q E (f_i - m)(f_j - m)
[counts: cell]
n_replicates | 1 | replicates that entered the measures
error_over | text | population that errors of the cell average over, and draws that they are conditional on
n_failed | 1 | replicates without a defined estimate: counted, never redrawn
n_batches | 1 | batches folded into the measures
precision_reached | bool | true if every target Monte Carlo error was reached
n_looks | 1 | number of looks at the cell, each of which decided whether to compute more replicates
control_variate | text | basis of the measures: plain replicates, with the reason, or replicates minus an expansion of
    known mean; only if some cell has known means
[counts: cell look]
look_replicates | 1 | replicates at each look, failed ones included; then 0
[counts: source cell]
inapplicable | text | why a theory does not apply to a cell; empty where it does
[counts: figure cell]
optimum_share | 1 | share of draws from the joint distribution of the estimates in which the cell has the least value
    among those that a figure of an optimum compares; NaN in other cells
[counts: figure cell index]
wrong_pair_share | 1 | share of pairs of cells of which that with the larger diversity index has the larger value, among
    the cells that a figure of an ordering compares with this one; NaN in other cells
wrong_pair_share_mcse | 1 | Monte Carlo standard error of wrong_pair_share, over joint draws of the estimates
[counts: cell drawn end]
interval | unit of the estimate | ends of the interval of each of the first replicates, and truth; NaN in replicates
    that failed, and in cells that no figure of intervals selects
[verdicts: claim]
verdict | text | supported, contradicted or undecided
expected_verdict | text | verdict that the design expects, stated before the run
statement | text | the claim in words
origin | text | source of the claim, as its design says
representative_statistic | text | representative comparison: the one that the design names, or that decides the claim
verdict_draws | text | draws on which the claim depends: settings drawn from a domain or these; a population or these
    points, heads, rows, models; replicates
these_draws | text | why the claim is about these draws alone, as its design says
claimed_value | see statistic | value or bound claimed
verdict_comparisons | 1 | number of comparisons in the claim
[verdicts_and_comparisons: claim]
statistic | text | statistic estimated in the cell or pair that decides the claim
verdict_estimate | see statistic | estimate of the deciding statistic
verdict_mcse | see statistic | error of verdict_estimate: Monte Carlo, and numerical of exact theory; over the
    population that verdict_draws names, if any; NaN if the statistic is no smooth function of estimates
claimed_lower | see statistic | lower end of the interval claimed, margin included
claimed_upper | see statistic | upper end of the interval claimed, margin included
confidence_lower | see statistic | lower confidence bound: the truth lies below with probability at most the level
confidence_upper | see statistic | upper confidence bound: the truth lies above with probability at most the level
p_against | 1 | p-value against the claim, corrected for the numbers of comparisons and claims, holding at all looks
    together: below the level it is contradicted
p_in_favour | 1 | p-value for the claim, corrected for the numbers of comparisons and claims, holding at all looks
    together: below the level it is supported
no_verdict_because | text | reason why the deciding statistic allows no verdict; empty if it does
"""


def _parsed(catalogue: str) -> Iterator[dict[str, Variable]]:
    """Yield variables by group, from lines ``name | unit | meaning | formula``; indented lines continue one."""
    for dims, lines in re.findall(r"^\[\w+: (.*)\]\n((?:[^[].*\n)+)", catalogue.replace("\n    ", " "), re.MULTILINE):
        rows = (line.split(" | ") for line in lines.splitlines())
        yield {name: Variable(tuple(dims.split()), *texts) for name, *texts in rows}


def _derived(variables: dict[str, Variable], suffix: str, meaning: str, *dims: str) -> dict[str, Variable]:
    """Return variables that describe others, in the same unit and, by default, dimensions without ``source``."""
    return {
        f"{name}_{suffix}": Variable(dims or each.dims[each.dims[0] == "source" :], each.unit, meaning.format(name))
        for name, each in variables.items()
    }


def _with_errors(measured: dict[str, Variable], theory: dict[str, Variable]) -> dict[str, Variable]:
    """Return measures, their standard errors, and numerical errors of their exact theory."""
    error = "standard error of {}: over the population of a cell that has one, else given its draws"
    bound = "bound of the numerical error of {} by exact theory, estimated on coarser grids or by randomisation"
    return measured | _derived(measured, "mcse", error) | _derived(theory, "numerical_error", bound)


def _details_of(averaged: dict[str, Variable]) -> dict[str, Variable]:
    points = _derived(averaged, "randomisation", "influence of points of all cells on {}", "cell", "randomisation")
    remainders = _derived(averaged, "remainder", "part of the MCSE of {} beyond blocks and points", "cell")
    return _derived(averaged, "contribution", _INFLUENCE, "block") | points | remainders


_BY_SOURCE, _OVER_QUERIES = ("source", "cell"), r"(, averaged over| and) queries"
_GROUPS = _parsed(_CATALOGUE + CATALOGUE)
MEASURES, STATISTICS, INDEXED_MEASURES, HEAD_MEASURES, PAIR_MEASURES, *_COUNTS, _COMPARED, OF_FUNCTIONS = _GROUPS
"""Statistics are further measures, NaN where undefined: first averages over single replicates, then functions of other
measures."""
OCCASIONAL = ("regret",)
"""Measures of ensembles that are left out of results if no cell has them."""
_BY_QUERY = {
    f"{name}_by_query": Variable(("query",), each.unit, f"{re.sub(_OVER_QUERIES, '', each.meaning)}, at each query")
    for name, each in MEASURES.items()
}
_COMPARISONS = {"comparison_claim": Variable(("comparison",), "text", "claim that the comparison belongs to")} | {
    f"comparison_{name.removeprefix('verdict_')}": Variable(("comparison",), each.unit, f"as {name}")
    for name, each in _COMPARED.items()
}
_AVERAGED = _with_errors(MEASURES | STATISTICS | INDEXED_MEASURES, MEASURES)
VARIABLES: dict[str, Variable] = _AVERAGED | dict(ChainMap(*_COUNTS[::-1])) | _COMPARED | _COMPARISONS
"""Variables of ``results.nc``."""
RESERVED = {*VARIABLES, *(name for each in VARIABLES.values() for name in each.dims)} | {
    "grid", "keys", "cell", "estimator", "drop", "tolerance", "indexers", "errors", "theory", "run", "figures",
}  # fmt: skip
"""Names that no factor or measure may have: names in results, and names with another meaning in xarray."""

_INFLUENCE = "influence of each block on {}: squares sum to MCSE², products to the covariance with a paired cell"
LENGTHS = {"block": "n_blocks", "head": "n_members", "pair": "n_pairs", "query": "n_queries"}
"""Variables with the number of rows of each cell, by the dimension of details along which cells are joined."""
DETAILS: dict[str, Variable] = {
    **{count: Variable(("cell",), "1", f"rows of the cell along {name}") for name, count in LENGTHS.items()},
    **_details_of(MEASURES | STATISTICS),
    **_derived(INDEXED_MEASURES, "contribution", _INFLUENCE, "block", "index"),
    "n_used_blocks": Variable(("cell",), "1", "blocks with a defined replicate; the others contribute nothing"),
    "query_point": Variable(("query", "feature"), "X", "query points; NaN beyond the features of the cell"),
    **_with_errors(HEAD_MEASURES | PAIR_MEASURES | _BY_QUERY, {}),
}  # fmt: skip
"""Variables of ``details.nc``."""

_COORDINATES = {
    "bandwidth_rule": "rule that gives the bandwidth",
    "source": "Monte Carlo (empirical), or theory",
    "index": "head diversity index",
    "drawn": "replicate",
    "end": "end of an interval, or the truth",
}
"""Descriptions of coordinates that are not settings."""


def measures_of_functions(cells: Iterable[Cell], texts: Mapping[str, Any]) -> dict[str, Variable]:
    """Return measures by functions of cells, by name, described by the design or the catalogue."""
    named = sorted({name for cell in cells if cell.functions is not None for name in cell.statistics})
    own = {name: Variable(_BY_SOURCE, each.unit, each.meaning, each.formula) for name, each in texts.items()}
    unknown = {name: Variable(_BY_SOURCE, "own unit", f"{name} by functions") for name in named}
    return {name: (unknown | OF_FUNCTIONS | own)[name] for name in named}


def stated_measures(attributes: Mapping[str, Any]) -> dict[str, Variable]:
    """Return measures by functions of the study, by name, from an attribute of results."""
    try:
        stated = json.loads(attributes.get("measures") or "{}")
        return {name: Variable(_BY_SOURCE, *map(str, text)) for name, text in stated.items()}
    except (ValueError, TypeError, AttributeError):
        raise UserError("the attribute measures is damaged; run the study again") from None


def registry(attributes: Mapping[str, Any]) -> dict[str, Variable]:
    """Return all variables that ``results.nc`` of a study may hold, by name."""
    return VARIABLES | _with_errors(stated_measures(attributes), {})


def averaged_measures(results: "xr.Dataset") -> list[str]:
    """Return the names of the measures in results that are averages over replicates, by functions first."""
    return [name for name in (*stated_measures(results.attrs), *STATISTICS, *MEASURES) if name in results]


def labelled(arrays: Mapping[str, Any], coords: Mapping[str, Any], attrs: Mapping[str, Any]) -> "xr.Dataset":
    """Return a data set of registered variables with their attributes; ValueError if shapes do not fit dimensions."""
    # Imported here: it takes a third of a second, and checks of a design do not need it.
    import xarray as xr

    own = stated_measures(attrs)
    known = VARIABLES | DETAILS | _with_errors(own, {}) | _details_of(own)
    variables = {}
    for name, array in arrays.items():
        variable = known[name]
        text = {"long_name": variable.meaning, "units": variable.unit, "formula": variable.formula}
        variables[name] = (variable.dims, array, {k: v for k, v in text.items() if v})
    return described(xr.Dataset(variables, coords=coords, attrs=dict(attrs)))


def described(results: "xr.Dataset") -> "xr.Dataset":
    """Return the data set with ``long_name`` and ``units`` in the attributes of every coordinate."""
    for name, coordinate in ((name, results.variables[name]) for name in results.coords):
        words, _, unit = setting(str(name))
        text = {"long_name": _COORDINATES.get(str(name), words)}
        coordinate.attrs = text | ({} if coordinate.dtype.kind in "OTU" else {"units": unit or "1"})
    return results


def coordinates_of(cells: "xr.Dataset") -> list[dict[str, Any]]:
    """Return the settings of each cell by name, for `level`, `selected` and `by_levels`."""
    # Variables, as labelled arrays of all coordinates take ten times as long as the rest.
    columns = {str(name): cells.variables[name] for name in cells.coords if cells.variables[name].dims == ("cell",)}
    rows = zip(*(values.values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]
