"""Key subspaces, keys that heads share, dimensions of keys and affinity of weights: against loops and known areas."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

import simstudy
from simstudy.data.geometry import diversity_indices
from simstudy.temperatures import Problem, best_sharpness
from simstudy.transformers import affinity, subspaces
from simstudy.transformers.affinity import affinity_stability
from simstudy.transformers.attention import GAPS, Projected, dimensions
from simstudy.transformers.heads import TransformerHeads


@pytest.mark.parametrize("n_heads, n_features, p", [(8, 64, 16), (4, 40, 24), (1, 48, 16), (2, 16, 16)])
def test_null__has_mean_and_deviation_of_subspaces_drawn_whole(n_heads, n_features, p, monkeypatch):
    """At 24 of 40 dimensions two subspaces meet."""
    monkeypatch.setattr(subspaces, "_HAAR_DRAWS", 600)
    rng = np.random.default_rng(0)
    found = subspaces.haar_indices(n_heads, n_features, p, p**0.25, rng)
    whole = diversity_indices(rng.standard_normal((600, n_heads, n_features, p)), p**0.25)
    known = ~np.isnan(whole[0])
    assert np.array_equal(known, ~np.isnan(found[0]))
    errors = np.sqrt((found.var(axis=0) + whole.var(axis=0)) / 600)
    # Where subspaces meet, a sine is 0 up to rounding, which QR makes 1e-8.
    gaps = np.maximum(np.abs(found.mean(axis=0) - whole.mean(axis=0)) - 1e-7, 0.0)
    assert (gaps <= 4.5 * errors)[known].all()
    varies = known & (whole.std(axis=0) > 1e-7)
    np.testing.assert_allclose(found.std(axis=0)[varies], whole.std(axis=0)[varies], rtol=0.15)


def test_many_directions__keep_six_digits(monkeypatch):
    """Two of the heads are nearly parallel: their angles come from sines."""
    monkeypatch.setattr(subspaces, "_LARGE", 1)
    rng = np.random.default_rng(1)
    keys = rng.standard_normal((2, 5, 12, 3))
    keys[:, 4] = keys[:, 0] + 1e-3 * keys[:, 4]
    found = subspaces.geometry(keys, np.tile(np.arange(5), (2, 1)), map)[1]
    np.testing.assert_allclose(found, diversity_indices(keys, 3**0.25), rtol=2e-6)


def test_keys_that_differ_in_their_bias_alone__are_two():
    keys, biases = np.ones((1, 3, 6, 2)), np.zeros((1, 3, 2))
    biases[0, 1] = 1.0
    assert subspaces.key_groups(keys, biases).tolist() == [[0, 1, 0]]


def test_heads_of_one_key_group__count_once():
    rng = np.random.default_rng(2)
    query, key = rng.standard_normal((2, 2, 4, 6, 2))
    key[:, 1], key[:, 3] = key[:, 0], key[:, 2]
    key[1, 3, 0, 0] += 1.0  # the second layer has three groups
    found = simstudy.inspect_heads(TransformerHeads(query, key, scale=0.4), rng.standard_normal((2, 6, 9, 6)))
    assert found.key_group.values.tolist() == [[0, 0, 2, 2], [0, 0, 2, 3]]
    np.testing.assert_allclose(found.hdi[0], simstudy.head_diversity(key[0, [0, 2]], 2**0.25), rtol=1e-6)
    units = [[(0, 0, 1)], [(0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3)], [(0, 2, 3)],
             [(1, 0, 1)], [(1, 0, 2), (1, 1, 2)], [(1, 0, 3), (1, 1, 3)], [(1, 2, 3)]]  # fmt: skip
    means = {source: np.array([np.mean([found.weight_correlation.sel(source=source).values[place] for place in unit])
                               for unit in units]) for source in ("observed", "half", "exact")}  # fmt: skip
    assert found.weight_correlation.sel(source="constant")[0, 0, 1] == pytest.approx(means["half"].mean())
    for source in ("half", "exact"):
        scores = found.sel(source=source)
        gaps = means[source] - means["observed"]
        assert scores.prediction_error == pytest.approx(np.sqrt(np.mean(gaps**2)))
        assert scores.prediction_rank == pytest.approx(spearmanr(means[source], means["observed"])[0])


@pytest.mark.parametrize("window", [99, 15])
@pytest.mark.parametrize("causal", [False, True])
def test_dimensions__are_those_of_loops(causal, window):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 25, 4))
    back = np.subtract.outer(np.arange(25), np.arange(25))
    found = dimensions(Projected(query, key), 0.5, (np.abs(back) < window) & (back >= 0 if causal else True))
    for h in range(3):
        apparent, logs = [], {k: [] for k in GAPS}
        for t in range(2 if causal else 0, 25):
            seen = [s for s in range(t if causal else 25) if 0 < abs(s - t) < window]
            logits = [0.5 * float(query[h, t] @ key[h, s]) for s in seen]
            entries = [np.average(logits, weights=[math.exp(power * each) for each in logits]) for power in (2, 1)]
            apparent.append(4 * (entries[0] - entries[1]))
            gaps = sorted(max(logits) - each for each in logits)[1:]
            for k in GAPS:
                logs[k] += [math.log(gaps[k - 1] / each) for each in gaps[: k - 1]] if len(gaps) >= k else []
        assert found.apparent_dimension[h] == pytest.approx(np.mean(apparent), rel=1e-9)
        for k, value in zip(GAPS, found.log_gaps[h], strict=True):
            assert value == pytest.approx(np.mean(logs[k]) if logs[k] else math.nan, rel=1e-9, nan_ok=True)
        lengths = np.linalg.norm(key[h] - key[h].mean(axis=0), axis=1)
        assert found.key_length_variation[h] == pytest.approx(lengths.std() / lengths.mean())


def sphere(rng, n_tokens, d):
    key = rng.standard_normal((4, n_tokens, d))
    return key / np.linalg.norm(key, axis=-1, keepdims=True)


def test_dimension_of_the_sphere__is_found_at_four_and_not_beyond_sixteen():
    """Four draws each; at the best temperature a sphere of 63 dimensions does not look like more than 10."""
    rng, found = np.random.default_rng(1), {}
    for d in (4, 16, 64):
        key = sphere(rng, 4096, d)
        found[d] = dimensions(Projected(key, key), best_sharpness(Problem("unit", d), 4096), None)
        assert found[d].key_length_variation.max() < 0.02
    assert found[4].apparent_dimension.mean() == pytest.approx(3.0, abs=0.2)
    assert 2 / found[4].log_gaps[:, -1].mean() == pytest.approx(3.0, abs=0.5)
    assert 6.5 < found[16].apparent_dimension.mean() < found[64].apparent_dimension.mean() < 10.0
    assert found[64].log_gaps[:, 0].mean() > 2 / 5.0


def test_gaussian_keys__vary_in_length():
    key = np.random.default_rng(2).standard_normal((1, 4096, 64))
    found = dimensions(Projected(key, key), 0.1, None)
    assert found.key_length_variation == pytest.approx(1 / math.sqrt(128), rel=0.1)


L, H, D, P = 3, 4, 12, 3
LABELS = {(0, 0): "a", (0, 2): "a", (1, 1): "a", (2, 3): "b", (1, 0): "b"}


@pytest.fixture
def heads():
    return TransformerHeads(*np.random.default_rng(0).standard_normal((4, L, H, D, P)))


@pytest.mark.parametrize("rows", [5, 99])
def test_affinities__are_those_of_angles_and_whole_forms(heads, rows, monkeypatch):
    monkeypatch.setattr(affinity, "_NUMBERS_AT_A_TIME", 1)
    monkeypatch.setattr(affinity, "_LEAST_ROWS", rows)
    found = simstudy.head_affinity(heads, dtype="float64")
    by_role = dict(zip("QKVO", (heads.query, heads.key, heads.value, heads.output), strict=True))
    forms = {"Q": heads.query @ heads.key.mT, "K": heads.key @ heads.query.mT, "V": heads.value @ heads.output.mT}
    source = heads.output @ heads.value.mT
    for one, other in np.ndindex(4, 4):
        one, other = "QKVO"[one], "QKVO"[other]
        a, b = by_role[one][1, 2], by_role[other][2, 0]
        cell = found.affinity.sel(role_i=one, role_j=other, head_i="L1H2", head_j="L2H0")
        kernel = (np.cos(simstudy.principal_angles(np.stack([a, b]))[0, 1]) ** 2).sum().item()
        assert cell.sel(measure="projection_kernel") == pytest.approx(kernel)
        assert cell.sel(measure="normalised_kernel") == pytest.approx(kernel / P)
        simple = np.linalg.norm(a.T @ b) / np.linalg.norm(a) / np.linalg.norm(b)
        assert cell.sel(measure="simple_composition") == pytest.approx(simple)
        whole = cell.sel(measure="composition").item()
        if one == "O" and other != "O":
            left, right = source[1, 2], forms[other][2, 0]
            assert whole == pytest.approx(np.linalg.norm(left.T @ right) / np.linalg.norm(left) / np.linalg.norm(right))
        else:
            assert np.isnan(whole)


@pytest.mark.parametrize("between", ["all", "across", "within", "forward"])
def test_areas__are_those_of_scikit_learn(heads, between):
    found = simstudy.head_affinity(heads, LABELS, between=between)
    for one, other in (("Q", "Q"), ("O", "K")):
        cell = found.sel(measure="projection_kernel", role_i=one, role_j=other)
        values, true, ends = [], [], []
        for i, j in np.ndindex(L * H, L * H):
            a, b = divmod(i, H), divmod(j, H)
            keep = {"all": i != j, "across": a[0] != b[0], "within": a[0] == b[0] and i != j, "forward": a[0] < b[0]}
            if keep[between] and (i < j or one != other):
                values.append(cell.affinity.values[i, j])
                true.append(a in LABELS and LABELS[a] == LABELS.get(b))
                ends.append((i, j))
        assert cell.roc_auc == pytest.approx(roc_auc_score(true, values))
        assert cell.pr_auc == pytest.approx(average_precision_score(true, values))
        assert cell.positive_share == pytest.approx(np.mean(true))
        left_out = [np.array([k not in pair for pair in ends]) for k in range(L * H)]
        parts = [roc_auc_score(np.array(true)[own], np.array(values)[own]) for own in left_out
                 if np.array(true)[own].any()]  # fmt: skip
        assert cell.roc_auc_error == pytest.approx(np.sqrt((len(parts) - 1) * np.var(parts)))


def test_pairs__have_a_direction_between_two_roles_and_none_within_one(heads):
    one, other = (simstudy.head_affinity(heads, [pair]) for pair in (((0, 0), (2, 1)), ((2, 1), (0, 0))))
    one, other = (found.roc_auc.sel(measure="projection_kernel", role_j="K") for found in (one, other))
    assert one.sel(role_i="K") == other.sel(role_i="K") and one.sel(role_i="O") != other.sel(role_i="O")


def test_shared_keys__count_once_and_layers_that_are_one_are_one(heads):
    heads.key[:, 1] = heads.key[:, 0]
    found = simstudy.head_affinity(heads).affinity.sel(measure="projection_kernel")
    blank = found.sel(role_i="K", role_j="Q").isnull().all("head_j")
    assert list(found.head_i[blank.values].values) == ["L0H1", "L1H1", "L2H1"]
    assert found.sel(role_i="Q", role_j="K", head_j="L0H1").isnull().all()
    assert found.sel(role_i="Q", role_j="O").notnull().all()
    one = TransformerHeads(*(np.broadcast_to(part[:1], part.shape) for part in (heads.query, heads.key)))
    assert simstudy.head_affinity(one).sizes["head_i"] == H


def test_stability__names_what_rounding_and_tolerance_change(heads):
    heads.query[0, 0, :, 2] = heads.query[0, 0, :, 0] + 1e-3 * heads.key[0, 0, :, 0]
    found = affinity_stability(heads, LABELS, tolerances=(None, 1e-2))
    exact = found.sel(device="numpy", dtype="float64")
    assert exact.largest_change[0] == exact.lost_ranks[0] == exact.largest_auc_change[0] == 0
    assert exact.lost_ranks[1] == 1 and exact.largest_change[1] > 0.01
    change = found.largest_change.isel(device=0, tolerance=1) - exact.largest_change[1]
    assert abs(change.sel(dtype="float32")) < 1e-5
    coarse = found.isel(tolerance=1).sel(device="numpy")
    assert coarse.largest_change.sel(dtype="bfloat16") > 1e-3 and (coarse.rank_correlation > 0.95).all()


@pytest.mark.parametrize("change, said", [
    ({"between": "near"}, "between = 'near'; give one of all, across, within, forward"),
    ({"dtype": "int8"}, "dtype = 'int8'; give one of float64"),
    ({"labels": {(3, 0): 1, (0, 0): 1}}, r"labels name head \(3, 0\); there are 3 layers of 4 heads"),
    ({"labels": {(0, 0): 1}}, "labels have no pair"),
])  # fmt: skip
def test_arguments_that_do_not_fit__are_refused(heads, change, said):
    with pytest.raises(ValueError, match=said):
        simstudy.head_affinity(heads, **change)
