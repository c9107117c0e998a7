"""Reactions as RXNMapper reads them: eight kinds with five partners each, written for these tests."""

from __future__ import annotations

import itertools
import re

# Of a benzene ring, at its fourth place.
_GROUPS = ("OC", "F", "C(F)(F)F", "C#N", "N(C)C")
_AMINES = ("NCc1ccccc1", "N1CCOCC1", "NC1CCCCC1", "NCCOC", "N1CCN(C)CC1")
_ALCOHOLS = ("OCC", "OCc1ccccc1", "OC(C)C", "OCCCC", "OC1CCCC1")


def _reactions() -> list[str]:
    found = []
    for group, amine, alcohol in zip(_GROUPS, _AMINES, _ALCOHOLS, strict=True):
        ring = f"c1ccc({group})cc1"
        # Rings that a partner opens take another number than the one that is open around them.
        other_amine, other_alcohol = amine.replace("1", "2"), alcohol.replace("1", "2")
        found += [
            f"O=C(O){ring}.{amine}.CN(C)C=O.CCN(CC)CC>>O=C({other_amine}){ring}",
            f"O=C(Cl){ring}.{alcohol}.ClCCl.c1ccncc1>>O=C({other_alcohol}){ring}",
            f"OB(O){ring}.Brc1cccnc1.C1COCCO1.O=C([O-])[O-].[K+].[K+]>>{ring.replace('1', '2')}-c1cccnc1",
            f"O=[N+]([O-]){ring}.CCO.[H][H].[Pd]>>N{ring}",
            f"O=C{ring}.{amine}.CC(=O)O.[BH3-]C#N.[Na+].CO>>C({other_amine}){ring}",
            f"Oc1ccc({group})cc1.BrCC(=O){alcohol}.O=C([O-])[O-].[K+].[K+].CC(C)=O>>O=C(CO{ring}){other_alcohol}",
            f"CC(C)(C)OC(=O)N{ring}.O=C(O)C(F)(F)F.ClCCl>>N{ring}",
            f"Fc1ccc([N+](=O)[O-])cc1.{amine}.CS(C)=O.CCN(C(C)C)C(C)C>>O=[N+]([O-])c1ccc({other_amine})cc1",
        ]
    return found


REACTIONS = _reactions()

_TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|>>?|%\d\d|.")


def tokens(reaction: str, vocabulary: dict[str, int]) -> list[int]:
    """Numbers of the tokens of a reaction, between those that begin and end a sequence."""
    found = [vocabulary.get(token, vocabulary["[UNK]"]) for token in _TOKEN.findall(reaction)]
    return [vocabulary["[CLS]"], *found, vocabulary["[SEP]"]]


def masked(numbers: list[int], vocabulary: dict[str, int], place: int) -> list[int]:
    return list(itertools.chain(numbers[:place], [vocabulary["[MASK]"]], numbers[place + 1 :]))
