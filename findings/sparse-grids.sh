#!/usr/bin/env bash
# Guess: `doe_sparse_grid` of pydoe gives Smolyak's grid of the rule that is named, so that no factor and no end of it is preferred.
# Found (pydoe 1.6.0, numpy 2.4.6): from level 2 on only the number of points is Smolyak's.  Most are the first of an equally spaced grid,
# in the order of its coordinates.  Of 145 points in the plane, level 5, the first factor is above one half in 2 % and the second in 39 %;
# their means are 0.06 and 0.44.  Of 441 points in three dimensions the means are 0.04, 0.04 and 0.45.  With one factor, level 3, six of nine
# points lie below one half.  `grid_type` changes nothing: Clenshaw-Curtis, Chebyshev and Gauss-Patterson points are the same to the last
# bit.  Grids of higher levels do not hold those of lower ones.  There is no warning.
# Documented: "Smolyak's construction", "good space-filling properties", and `grid_type` as the points of a dimension.  No report was found.
# Why it matters: a response is studied in one corner, and Smolyak's weights and interpolation do not fit the points.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pydoe==1.6.0 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import itertools
import warnings

import numpy as np
import pydoe

warnings.simplefilter("error")
KINDS = ("clenshaw_curtis", "chebyshev", "gauss_patterson")


def rule(level):
    return np.array([0.5]) if level == 0 else (1 - np.cos(np.pi * np.arange(2**level + 1) / 2**level)) / 2


def smolyak(level, factors):
    """Union of the grids of Clenshaw and Curtis whose levels add up to at most this one."""
    levels = (each for each in itertools.product(range(level + 1), repeat=factors) if sum(each) <= level)
    return places(point for each in levels for point in itertools.product(*map(rule, each)))


def places(points):
    return {tuple(np.round(point, 9) + 0.0) for point in points}


found = {}
for factors in (1, 2, 3):
    for level in range(6):
        grid, right = pydoe.doe_sparse_grid(level, factors), smolyak(level, factors)
        common, mirrored = len(places(grid) & right), places(1 - grid) == places(grid)
        found[factors, level] = grid.mean(axis=0), (grid > 0.5).mean(axis=0), mirrored, common == len(right)
        print(f"{factors} factors, level {level}: {len(grid)} points for {len(right)}, {common} in common; means {grid.mean(axis=0).round(2)}, "
              f"above one half {(grid > 0.5).mean(axis=0).round(2)}; by Smolyak {np.mean([*right], axis=0).round(2)}")
        assert len(places(grid)) == len(grid) == len(right) and all(places(1 - np.array([point])) <= right for point in right)
        assert all(np.array_equal(grid, pydoe.doe_sparse_grid(level, factors, kind)) for kind in KINDS)
assert all(same == (level < 2) for (_, level), (*_, same) in found.items())
assert found[2, 5][0][0] < 0.1 < 0.4 < found[2, 5][0][1] and found[2, 5][1][0] < 0.1 and max(found[3, 5][0][:2]) < 0.1
assert not any(mirrored for (_, level), (_, _, mirrored, _) in found.items() if level > 2)
assert not places(pydoe.doe_sparse_grid(3, 2)) <= places(pydoe.doe_sparse_grid(4, 2))
PY
