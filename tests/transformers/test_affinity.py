"""Affinity of the weights of heads: against principal angles, whole forms and scikit-learn's areas."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import simstudy
from simstudy.transformers import affinity
from simstudy.transformers.affinity import affinity_stability
from simstudy.transformers.heads import TransformerHeads

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
