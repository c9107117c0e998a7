"""Heads on texts: Grams against loops, theory against simulated keys, what is refused, and the command."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from builders import refuses
from commands import simstudy as command
from scipy.stats import spearmanr

from simstudy import inspect_heads
from simstudy.transformers.inspection import Layer, _labelled

RNG = np.random.default_rng(5)
W = {"W_Q": RNG.standard_normal((2, 3, 8, 4)), "W_K": RNG.standard_normal((2, 3, 8, 4))}
STATES = RNG.standard_normal((2, 6, 12, 8))


def weights_of(states, layer, causal, scale):
    """Weights (head, query, key) of one text by a loop."""
    found = np.zeros((3, len(states), len(states)))
    for h, t in np.ndindex(found.shape[:2]):
        keys = states[: t + 1 if causal else None] @ W["W_K"][layer, h]
        row = np.array([np.exp(scale * key @ W["W_Q"][layer, h].T @ states[t]) for key in keys])
        found[h, t, : len(keys)] = row / row.sum()
    return found


def alike(weights):
    """Mean correlation (head, head) over queries that see a key, of weights (head, query, key)."""
    rows = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in weights.swapaxes(0, 1) if rows.any()]
    return np.mean([each @ each.T for each in rows], axis=0)


@pytest.mark.parametrize(("causal", "scale"), [(False, 0.5), (True, 0.2)])
def test_arrays__have_the_grams_of_a_loop(causal, scale):
    found = inspect_heads({**W, "causal": causal, "scale": scale}, STATES)
    weights = np.array([[weights_of(text, layer, causal, scale) for text in STATES[layer]] for layer in range(2)])
    for layer in range(2):
        grams = [np.einsum("hts,gts->hg", text, text) / 12 for text in weights[layer]]
        own = np.array([alike(text) for text in weights[layer]])
        seen = found.isel(layer=layer)
        np.testing.assert_allclose(seen.weight_correlation[:2], own.reshape(3, 2, 3, 3).mean(axis=0)[::-1], rtol=1e-10)
        error = own[1::2].std(axis=0, ddof=1) / np.sqrt(3)
        np.testing.assert_allclose(seen.weight_correlation_mcse.sel(source="observed"), error, atol=1e-12)

        def worth(shares, judged=grams[1::2]):
            mean = np.average(judged, axis=0, weights=shares)
            return 3 * np.trace(mean) / mean.sum()

        assert seen.effective_heads.sel(source="observed").item() == pytest.approx(worth(np.ones(3)))
        slopes = [3 * (worth(1 + step) - worth(1 - step)) / 2e-4 for step in 1e-4 * np.eye(3)]
        error = np.std(slopes, ddof=1) / np.sqrt(3)
        assert seen.effective_heads_mcse.sel(source="observed").item() == pytest.approx(error, rel=1e-5)
        np.testing.assert_allclose(seen.sink_share, weights[layer, 1::2].mean(axis=2).max(axis=2).mean(axis=0))
    alone = inspect_heads({"weights": weights})
    np.testing.assert_allclose(alone.effective_heads[:, :2], found.effective_heads[:, :2])
    assert np.isnan(alone.effective_heads.sel(source="exact")).all() and "weights alone" in alone.inapplicable[0].item()
    few = [np.rint(9 * each).astype("i1") for each in (*W.values(), STATES)]  # eight bits do not hold their sums
    found, wide = (inspect_heads({"W_Q": q, "W_K": k}, s) for q, k, s in (few, [each.astype(float) for each in few]))
    np.testing.assert_allclose(found.effective_heads, wide.effective_heads, rtol=1e-4)


def test_pairs_and_scores__are_those_of_the_correlations_and_of_texts_left_out_in_turn():
    found, pair = inspect_heads(W, STATES), np.triu_indices(3, 1)
    assert (np.diff(found.pair_correlation) < 0.0).all() and found.sizes["pair"] == 6
    for name in ("correlation", "correlation_mcse"):
        whole = found[f"weight_{name}"].sel(source="observed").values
        listed = whole[found.pair_layer.values, found.pair_head_i.values, found.pair_head_j.values]
        np.testing.assert_array_equal(found[f"pair_{name}"], listed)
    weights = np.array([[weights_of(text, layer, False, 0.5) for text in STATES[layer, 1::2]] for layer in range(2)])
    judged = np.array([[alike(text)[pair] for text in layer] for layer in weights]).swapaxes(0, 1).reshape(3, 6)
    for source in ("half", "exact"):
        predicted = found.weight_correlation.sel(source=source).values[:, pair[0], pair[1]].ravel()
        for name, score in (
            ("rank", lambda seen, predicted=predicted: spearmanr(predicted, seen).statistic),
            ("error", lambda seen, predicted=predicted: np.sqrt(np.mean((predicted - seen) ** 2))),
        ):
            left_out = [score(np.delete(judged, text, axis=0).mean(axis=0)) for text in range(3)]
            both = (found[f"prediction_{name}{end}"].sel(source=source).item() for end in ("", "_mcse"))
            assert [*both] == pytest.approx([score(judged.mean(axis=0)), 2**0.5 * np.std(left_out)], rel=1e-8)


@pytest.mark.parametrize("hidden", [None, False, -3.4028234663852886e38, -np.inf])
def test_query_that_sees_no_key__is_in_no_average(hidden):
    """Where it would have weights of 0, or 1/s under a mask that adds the lowest number."""
    torch = pytest.importorskip("torch")
    states, kept = torch.tensor(STATES[0], dtype=torch.float32), torch.ones(12, 12).tril(-1).bool()
    w_q, w_k = (torch.tensor(W[name][0], dtype=torch.float32) for name in ("W_Q", "W_K"))
    mask = kept if not hidden else torch.zeros(12, 12).masked_fill(~kept, hidden)

    class Strict(torch.nn.Module):
        def forward(self, x, first):
            query, key = (torch.einsum("btf,hfd->bhtd", x, w) for w in (w_q, w_k))
            query = torch.cat([first * query[:, :, :1], query[:, :, 1:]], 2)
            return torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    weights = np.where(kept, [[weights_of(text, 0, True, 0.5) for text in STATES[0]]], 0.0)
    weights /= weights.sum(-1, keepdims=True).clip(1e-300)
    if hidden is None:
        found = [inspect_heads({"weights": weights})]
    else:
        found = [inspect_heads(Strict().eval(), {"x": states, "first": first}) for first in (1.0, 9.0)]
        np.testing.assert_array_equal(found[0].effective_heads, found[1].effective_heads)
    expected = inspect_heads({"weights": weights[..., 1:, :]})
    for name in ("weight_correlation", "effective_heads", "sink_share"):
        np.testing.assert_allclose(found[0][name].squeeze()[0], expected[name].squeeze()[0], rtol=2e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_theory__is_of_shared_keys_of_even_texts_and_queries_of_odd_ones_without_padding(padded):
    queries, keys = RNG.standard_normal((6, 4, 5, 3)), RNG.standard_normal((6, 2, 5, 3))
    found = []
    for size, shared in ((5, True), (7 if padded else 5, False)):
        layer, valid = Layer(np.random.default_rng(0)), np.arange(size) < 5
        q, k = (np.pad(each, [(0, 0), (0, 0), (0, size - 5), (0, 0)], constant_values=9.0) for each in (queries, keys))
        if not shared:
            q[::2], k[1::2] = 0.0, 0.0
        call = SimpleNamespace(query=q, key=k if shared else k.repeat(2, axis=1), scale=0.4)
        seen = np.broadcast_to(valid, (6, size, size))
        layer.add((*2 * [np.ones((6, 4, 4))], np.ones((6, 4, size))), call, seen[:, 0], "", seen)
        found.append(np.concatenate([each.mean(axis=0).ravel() for each in layer.theory()]))
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_theory__of_fewer_keys_than_heads_is_told_and_windows_of_one_text_count_as_one_without_it():
    layer, rng, seen = Layer(np.random.default_rng(0)), np.random.default_rng(1), np.ones((4, 3, 3), bool)
    q, k = rng.standard_normal((2, 4, 12, 3, 8), np.float32)
    call = SimpleNamespace(query=q, key=k, scale=0.35)
    layer.add((*2 * [np.ones((4, 12, 12))], np.ones((4, 12, 3))), call, seen[:, 0], "", seen)
    assert np.isfinite(layer.theory()[0]).all()  # whatever their rounding
    layer, grams, shares = Layer(RNG), RNG.random((8, 2, 2)), RNG.random((8, 2, 5))
    layer.add((grams, grams**2, shares), None, None, "")
    layer.gather(4, "windows")
    np.testing.assert_allclose(layer.gram, (grams[::2] + grams[1::2]) / 2)
    np.testing.assert_allclose(layer.correlation, (grams[::2] ** 2 + grams[1::2] ** 2) / 2)
    np.testing.assert_allclose(layer.sink[..., 0], (shares[::2].max(axis=-1) + shares[1::2].max(axis=-1)) / 2)
    assert "computed in windows" in layer.reason and np.isnan(layer.theory()[0]).all()
    refuses("attention of 8 sequences beside 3", layer.gather, 3, "windows")


def test_heads_that_a_layer_lacks__are_left_out_of_every_comparison():
    few, many = (Layer(np.random.default_rng(0)) for _ in range(2))
    for layer, n_heads in ((few, 3), (many, 4)):
        weights = np.random.default_rng(n_heads).dirichlet(np.ones(6), (8, n_heads, 5))
        gram = np.einsum("bhts,bgts->bhg", weights, weights) / 5
        layer.add((*[np.tile(gram[:1], (8, 1, 1))] * 2, weights.mean(axis=2)), None, None, "")
        layer.gather(8, "same")
    found = _labelled({"few": few, "many": many})
    assert found.prediction_error.sel(source="half").item() < 1e-12  # all texts are one
    own = found.weight_correlation[0, 0].values[np.triu_indices(3, 1)].mean()
    assert found.layer_correlation[0, 0].item() == pytest.approx(own)


def test_theory__is_what_many_gaussian_keys_give():
    """Of one query for all texts, so that there is no choice of queries: 60 keys, and logits of variance near 1."""
    states = np.random.default_rng(1).standard_normal((1, 400, 60, 8))
    query = np.ones((1, 1, 60, 4)) * [1.0, -1.0, 0.5, 0.5]
    rows = np.concatenate([states, np.ones((1, 400, 60, 1))], axis=-1)
    w_q = np.concatenate([np.zeros((1, 3, 8, 4)), np.repeat(query[:, :, :1], 3, axis=1)], axis=2)
    w_k = np.concatenate([W["W_K"][:1], np.zeros((1, 3, 1, 4))], axis=2)
    arrays = {"W_Q": w_q, "W_K": w_k, "scale": 0.2}
    found = inspect_heads(arrays, rows)
    rows[..., :8] += 3.0 * np.random.default_rng(2).standard_normal((1, 400, 1, 8))  # of a text, which no softmax sees
    np.testing.assert_allclose(inspect_heads(arrays, rows).weight_correlation, found.weight_correlation, rtol=1e-9)
    assert found.inapplicable.item() == ""
    assert found.weight_correlation_mcse.sel(source="exact").max() < 1e-9  # all queries are one
    theory, seen = (found.effective_heads.sel(source=each).item() for each in ("exact", "observed"))
    assert abs(theory - seen) < 4 * found.effective_heads_mcse.sel(source="observed").item() < 0.1
    np.testing.assert_allclose(found.logit_variance[0], ((0.2 * w_k[0] @ query[0, 0, 0]) ** 2).sum(axis=1), rtol=0.05)


def test_errors_of_theory__are_those_of_the_choice_of_queries():
    states = np.random.default_rng(2).standard_normal((2, 8, 60, 8))
    runs = xr.concat([inspect_heads({**W, "scale": 0.2}, states, seed=seed) for seed in range(60)], "seed")
    runs = runs.sel(source="exact")
    for name in ("weight_correlation", "layer_correlation", "mean_correlation", "effective_heads"):
        stated, seen = (runs[f"{name}_mcse"] ** 2).mean("seed"), runs[name].var("seed", ddof=1)
        moving = seen.values > 1e-12  # the correlation of a head with itself does not move
        np.testing.assert_allclose(stated.values[moving] / seen.values[moving], 1.0, atol=0.6)


@pytest.mark.parametrize("arrays, states, said", [
    ({"W_Q": W["W_Q"]}, STATES, "arrays W_Q; give W_Q and W_K"),
    ({**W, "W_V": 1}, STATES, "give W_Q and W_K"),
    *((W, STATES[:, :n], f"{n} {text}; give at least 4") for n, text in ((1, "text"), (3, "texts"))),
    (W, STATES[..., :5], "states of 5 features, heads of 8"),
    *((W, STATES[each], "give .layer, head, feature, dimension. twice") for each in (0, np.s_[:, :, :0])),
    (W, np.where(STATES > 3, np.nan, STATES), "W_Q, W_K or states hold NaN or infinity; give finite numbers"),
    ({"weights": np.ones((2, 3))}, None, "weights have shape"),
    *(({"weights": np.full((1, 4, 2, 3, 3), each)}, None, "sum 1 at most, in no text all 0") for each in (0.0, 1.0)),
])  # fmt: skip
def test_arrays_that_do_not_fit__are_refused(arrays, states, said):
    refuses(said, inspect_heads, arrays, states)
    refuses("seed = -1: must be a whole number, at least 0", inspect_heads, arrays, states, seed=-1)


def test_command__writes_page_and_data_of_arrays(tmp_path, monkeypatch, in_process):
    half = {name: each.astype("f2") for name, each in {**W, "states": STATES}.items()}  # which no file of results holds
    np.savez(tmp_path / "heads.npz", **half, causal=True)
    expected = inspect_heads({name: half[name] for name in W} | {"causal": True}, half["states"])
    done = command("inspect", "heads.npz", "--output", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "A layer is worth " in done.stdout and done.stdout.count("alike    layer") == 5
    assert f"One token gets up to {expected.sink_share.max():.2g}" in done.stdout
    text = (tmp_path / "out" / "heads.html").read_text()
    assert text.index("A layer is worth") < text.index("<img") < text.index("Which heads are most alike?")
    stored = xr.load_dataset(tmp_path / "out" / "heads.nc")
    np.testing.assert_array_equal(stored.effective_heads, expected.effective_heads)
    np.savez(tmp_path / "bare.npz", **W)
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr("simstudy.report.heads.image", lambda drawing: drawn.append(drawing) or b"")
    done = in_process("inspect", "heads.npz", "--output", "out")
    assert done.returncode == 0 and drawn[0].axes[0].get_xticks().tolist() == [0, 1]  # layers have whole numbers
    (tmp_path / "out" / "config.json").touch()
    for arguments, said in (
        (("heads.npz",), "Missing option '--output'"),
        (("out", "--output", "out"), "--texts: give a file"),
        (("heads.npz", "--texts", "none.txt", "--output", "out"), "--texts none.txt: arrays are of texts already"),
        (("n" * 300, "--output", "out"), "nnn: neither .npz nor a folder with config.json"),
        (("none.npz", "--output", "out"), "none.npz: cannot be read"),
        (("bare.npz", "--output", "out"), "bare.npz: states = None has dtype object; give real numbers, (layer, text,"),
        (("out", "--texts", "none.txt", "--output", "out"), "none.txt: cannot be read"),
    ):
        refused = in_process("inspect", *arguments)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr


def test_models__are_inspected_as_they_compute(tmp_path, monkeypatch, in_process):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AlbertConfig(
        vocab_size=30, embedding_size=16, hidden_size=16, num_attention_heads=4, intermediate_size=16,
        num_hidden_layers=2, inner_group_num=2, num_hidden_groups=1,
    )  # fmt: skip
    model = transformers.AlbertModel(config, add_pooling_layer=False).eval()
    for parameter in model.parameters():
        parameter.data *= 8.0
    ids, mask = torch.randint(0, 30, (6, 11)), torch.ones(6, 11, dtype=torch.long)
    mask[1, 7:] = 0
    batches = [{"input_ids": ids[part], "attention_mask": mask[part]} for part in (slice(0, 4), slice(4, 6))]
    found = inspect_heads(model, batches)
    assert found.sizes["layer"] == 4  # twice a group of two
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(ids, attention_mask=mask, output_attentions=True).attentions[0].double().numpy()
    expected = [alike(w[:, kept]) for w, kept in zip(own, mask.bool().numpy(), strict=True)]
    seen = found.weight_correlation.sel(source="observed").values[0]
    np.testing.assert_allclose(seen, np.mean(expected[1::2], axis=0), atol=2e-6)
    said_of_text = "inputs of type str; give mappings such as a tokenizer returns"
    other = "no tensors of the same texts; call the tokenizer with return_tensors='pt'"
    for inputs, said in (
        (None, "give what the model takes"), (3, "inputs of type int"), ("a text", said_of_text),
        (["a text"], said_of_text), (batches[:1] * 0, "no texts"), ({"input_ids": ids.tolist()}, other),
        ({"input_ids": ids, "attention_mask": mask[:4]}, other), ({"input_ids": ids[:0]}, other),
        *(({"input_ids": ids, "attention_mask": (torch.arange(6) != k)[:, None] * mask}, f"text {k} .counted from 0")
          for k in (2, 3)),
    ):  # fmt: skip
        refuses(said, inspect_heads, model, inputs)
    model.save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    transformers.BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    for gap, status, said in (("", 2, "1 of 4 texts differ in their tokens"), (" ", 0, "")):  # ab is one unknown word
        (tmp_path / "texts.txt").write_text("\n".join(gap.join(text) for text in ("ab", "ca", "cb", "bb")))
        done = in_process("inspect", ".", "--texts", "texts.txt", "--output", "out")
        assert done.returncode == status and said in done.stderr, done.stderr
    model.double()  # in float32, layers of large weights differ by the size of a batch
    whole, parts, one_by_one = (inspect_heads(model, given) for given in (ids, ids.split(2), {"input_ids": ids}))
    for other in (parts, one_by_one):
        np.testing.assert_allclose(whole.weight_correlation, other.weight_correlation, atol=1e-6)
    refuses("is in training mode", inspect_heads, model.train(), batches)
