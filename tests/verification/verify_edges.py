"""Verdict of ``make verify``: is every theory as good as it says at the edge of where it says that it holds?"""

import pytest
from edges import KINDS, simulated


@pytest.mark.parametrize("kind", KINDS)
def test_theory_holds_up_to_its_edge(kind):
    draw, count = KINDS[kind]
    edges = [edge for number in range(count) if (edge := draw(number)) is not None]
    found = [each for edge in edges for each in simulated(edge, n_batches=8)]
    worst = sorted(found, key=lambda each: abs(each.off) - 4 * each.mcse, reverse=True)
    print(f"\n{kind}: {len(edges)} of {count} cells have an edge; the worst of {len(found)} comparisons:")
    print(*worst[:4], sep="\n")
    assert len(edges) >= count // 3
    assert not [str(each) for each in found if not each.good]
