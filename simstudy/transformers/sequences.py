"""Sequences for trained transformers, each drawn by a random process that is stated here.

- Reactions, for ``rxnmapper``: one of 16 kinds of reaction that are common in patents, each of its groups one of 14 to
  30, with a solvent and perhaps a base: some 300,000 of them.
- Heavy chains of antibodies, for ``antiberty``: one of three frameworks, written from memory after the human germline
  genes IGHV1-69, IGHV3-23 and IGHV4-34, of which one residue in 25 is replaced, and 5 to 15 random residues in the
  third loop.  They are like antibodies; none is one that was found.
- Texts, for ``minilm`` and ``smollm2``: four sentences of the manual that comes with Python, drawn at random: sentences
  recur, texts hardly.  Another version of Python has other sentences.  Texts of a given length have more, and end where
  they must.

Texts of another kind are six molecules among those groups without a reaction, for ``rxnmapper``, and for ``smollm2``
numbers below 1000 with commas between them.
"""

import functools
import itertools
import re
from collections.abc import Callable

import numpy as np

Vocabulary = dict[str, int]

# SMILES that begin with the atom that is bound: of rings of carbon and hetero atoms, and others.
_ARYL = (
    "c1ccccc1", "c1ccc(F)cc1", "c1ccc(Cl)cc1", "c1ccc(OC)cc1", "c1cccc(C)c1", "c1ccc(C(F)(F)F)cc1", "c1cccnc1",
    "c1ccc2[nH]ccc2c1", "c1ccsc1", "c1cnc(N)nc1", "c1ccc(C#N)cc1", "c1cccc(C(=O)OC)c1", "c1ccc2ccccc2c1", "c1cc(C)no1",
)  # fmt: skip
_ALKYL = (
    "C", "CC", "CCC", "C(C)C", "CC(C)C", "C1CC1", "C1CCCCC1", "CC1CC1", "CCOC", "CCc1ccccc1", "Cc1ccccc1",
    "Cc1ccc(F)cc1", "Cc1ccco1", "C1CCOCC1", "C1CCN(C)CC1", "CCN1CCOCC1",
)  # fmt: skip
# Reactants, agents except solvent and base, product; a: aryl, x: alkyl, r and s: either.
_REACTIONS = (
    ("O=C(O){r}.N{s}", "CCN=C=NCCCN(C)C", "O=C(N{s}){r}"),
    ("O=C(Cl){r}.N{s}", "", "O=C(N{s}){r}"),
    ("O=S(=O)(Cl){r}.N{s}", "", "O=S(=O)(N{s}){r}"),
    ("O=C(O){r}.O{x}", "OS(=O)(=O)O", "O=C(O{x}){r}"),
    ("O=C(OC){r}", "[Li+].[OH-].O", "O=C(O){r}"),
    ("O{a}.Br{x}", "O=C([O-])[O-].[K+].[K+]", "O({x}){a}"),
    ("N{s}.Br{a}", "CC(=O)[O-].CC(=O)[O-].[Pd+2]", "N({s}){a}"),
    ("C#C{r}.I{a}", "[Cu]I", "C(#C{r}){a}"),
    ("C=C{r}.Br{a}", "CC(=O)[O-].CC(=O)[O-].[Pd+2]", "C(=C{r}){a}"),
    ("O=C{r}.N{s}", "[BH3-]C#N.[Na+].CC(=O)O", "C({r})N{s}"),
    ("O=C({x}){r}", "[BH4-].[Na+]", "OC({x}){r}"),
    ("OC{r}", "O=[Mn]=O", "O=C{r}"),
    ("O=[N+]([O-]){a}", "[H][H].[Pd]", "N{a}"),
    ("CC(C)(C)OC(=O)N{s}", "O=C(O)C(F)(F)F", "N{s}"),
    ("O=C=N{a}.N{s}", "", "O=C(N{s})N{a}"),
    ("O=C({r}){x}.Br{s}", "[Mg]", "OC({s})({r}){x}"),
)
_SOLVENTS = ("ClCCl", "C1CCOC1", "CN(C)C=O", "CO", "CCO", "CC#N", "Cc1ccccc1", "C1COCCO1", "CS(C)=O")
_BASES = ("CCN(CC)CC", "CCN(C(C)C)C(C)C", "c1ccncc1", "", "", "")
_SMILES_TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|>>?|%\d\d|.")

_CHAINS = (
    ("QVQLVQSGAEVKKPGSSVKVSCKASGGTFSSYAISWVRQAPGQGLEWMGGIIPIFGTANYAQKFQGRVTITADESTSTAYMELSSLRSEDTAVYYCAR",
     "FDYWGQGTLVTVSS"),
    ("EVQLLESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK",
     "FDIWGQGTMVTVSS"),
    ("QVQLQQWGAGLLKPSETLSLTCAVYGGSFSGYYWSWIRQPPGKGLEWIGEINHSGSTNYNPSLKSRVTISVDTSKNQFSLKLSSVTAADTAVYYCAR",
     "MDVWGQGTTVTVSS"),
)  # fmt: skip
_RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
_LOOP_RESIDUES = "GGGYYYSSSDDDAARRTTVVPLWFNEIKQH"
_REPLACED = 0.04

_SENTENCES = 4
# Digits one by one; endings of English verbs; letters or other signs, with the space before them; further spaces.
_WORD = re.compile(r"\d|'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def draw_tokens(
    model: str, vocabulary: Vocabulary, rng: np.random.Generator, length: int | None = None, *, other: bool = False
) -> list[int]:
    """Draw a sequence for a model, as the numbers of its tokens between those that begin and end one.

    SmolLM2 knows no such tokens; its texts alone can have a ``length``.  It and RXNMapper have texts of another kind.
    """
    if model == "smollm2":
        text = draw_numbers(rng) if other else draw_text(rng, _SENTENCES if length is None else length // 4)
        return byte_pairs(text, vocabulary, length)
    draw, split = _PROCESSES[model]
    drawn = ".".join(rng.choice((*_ARYL, *_ALKYL), 6)) if other else draw(rng)
    return framed(split(drawn, vocabulary), vocabulary)


def framed(tokens: list[str], vocabulary: Vocabulary) -> list[int]:
    """Return numbers of tokens, between those that begin and end a sequence."""
    return [vocabulary.get(token, vocabulary["[UNK]"]) for token in ("[CLS]", *tokens, "[SEP]")]


def draw_reaction(rng: np.random.Generator) -> str:
    """Draw a reaction as SMILES: reactants and agents, >>, product."""
    reactants, agents, product = _REACTIONS[rng.integers(len(_REACTIONS))]
    any_group = (*_ARYL, *_ALKYL)
    groups = {
        name: str(rng.choice(among))
        for name, among in (("a", _ARYL), ("x", _ALKYL), ("r", any_group), ("s", any_group))
    }
    parts = reactants.format(**groups), agents, str(rng.choice(_SOLVENTS)), str(rng.choice(_BASES))
    return f"{'.'.join(part for part in parts if part)}>>{product.format(**groups)}"


def draw_numbers(rng: np.random.Generator) -> str:
    """Draw 64 whole numbers below 1000, with commas between them."""
    return ", ".join(map(str, rng.integers(1000, size=64)))


def draw_chain(rng: np.random.Generator) -> str:
    """Draw a heavy chain of an antibody, a letter for each residue."""
    before, after = _CHAINS[rng.integers(len(_CHAINS))]
    loop = "".join(rng.choice(list(_LOOP_RESIDUES), rng.integers(5, 16)))
    replaced = rng.random(len(before)) < _REPLACED
    others = rng.choice(list(_RESIDUES), len(before))
    return "".join(np.where(replaced, others, list(before))) + loop + after


def draw_text(rng: np.random.Generator, sentences: int = _SENTENCES) -> str:
    """Draw a text of some sentences."""
    return " ".join(rng.choice(_sentences(), sentences, replace=False))


@functools.cache
def _sentences() -> tuple[str, ...]:
    from pydoc_data.topics import topics

    parts = (" ".join(part.split()) for text in topics.values() for part in text.split("\n\n"))
    prose = (part for part in parts if part[:1].isupper() and part.endswith("."))
    every = (each for part in prose for each in re.split(r"(?<=\.) (?=[A-Z])", part))
    return tuple(dict.fromkeys(each for each in every if 40 < len(each) < 250))


def word_parts(text: str, vocabulary: Vocabulary) -> list[str]:
    """Split the words of a text, each again and again by the longest part that is known (Wu et al. 2016)."""
    found = []
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            ends = range(len(word), start, -1)
            known = (end for end in ends if ("##" if start else "") + word[start:end] in vocabulary)
            end = next(known, len(word))
            found.append(("##" if start else "") + word[start:end])
            start = end
    return found


def byte_pairs(text: str, vocabulary: Vocabulary, length: int | None = None) -> list[int]:
    """Numbers of the tokens of a text, or of so many: in each word the neighbours that make the earliest token join.

    As the vocabulary is in the order in which pairs were merged, it needs no list of them (Sennrich et al. 2016).
    """
    found: list[int] = []
    for word in _WORD.findall(text):
        if length is not None and len(found) >= length:
            break
        parts = [_letters()[byte] for byte in word.encode()]
        while len(parts) > 1:
            places = [vocabulary.get(left + right, len(vocabulary)) for left, right in itertools.pairwise(parts)]
            if (first := min(places)) == len(vocabulary):
                break
            place = places.index(first)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        found += [vocabulary[part] for part in parts]
    return found[:length]


@functools.cache
def _letters() -> list[str]:
    """A letter that can be seen for each byte, as GPT-2 has them."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = itertools.count(256)
    return [chr(byte if byte in seen else next(hidden)) for byte in range(256)]


_PROCESSES: dict[str, tuple[Callable[[np.random.Generator], str], Callable[[str, Vocabulary], list[str]]]] = {
    "rxnmapper": (draw_reaction, lambda reaction, _: _SMILES_TOKEN.findall(reaction)),
    "antiberty": (draw_chain, lambda chain, _: list(chain)),
    "minilm": (draw_text, word_parts),
}
