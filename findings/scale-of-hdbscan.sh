#!/usr/bin/env bash
# Guess: HDBSCAN's `alpha`, which divides distances but not core distances, changes the hierarchy by each algorithm and in both libraries alike.
# Found (hdbscan 0.8.44, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): hdbscan ignores it with its default algorithm for up to 60 columns:
# hierarchies with 0.5, 2 and 4 are those with 1, to the last bit.  With 61 columns, of which 59 are 0, or with `algorithm="generic"`, it counts.
# Of 250 points in two clusters and a background then 11 are noise with 0.5, and 28 by default.  scikit-learn's default counts it too, but its
# `algorithm="brute"` divides core distances as well: all is in other units, and clusters stay.  As scikit-learn counts the point itself among
# `min_samples` and hdbscan does not, its 11 are hdbscan's 10.  There is no warning.
# Documented: in both as a distance scaling parameter, as in robust single linkage, without exceptions.  hdbscan says that the point itself is
# among `min_samples`.  In a review of 2022 scikit-learn's division was left for later; no report was found.
# Why it matters: a search over `alpha` compares equal models, and its result changes with the number of columns or the library.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check hdbscan==0.8.44 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore - <<'PY'
import hdbscan
import numpy as np
import sklearn.cluster
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

NEIGHBOURS, ALPHAS = 10, (0.5, 1.0, 2.0, 4.0)
rng = np.random.default_rng(1)
points = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 4, rng.uniform(-4, 8, size=(50, 2))])
wide = np.concatenate([points, np.zeros((len(points), 59))], axis=1)


def by_hand(alpha, cores_too=False):
    """Heights of single linkage of the largest of two core distances and the distance, which is divided."""
    distances = squareform(pdist(points))
    cores = np.sort(distances, axis=1)[:, NEIGHBOURS] / (alpha if cores_too else 1)
    return np.sort(minimum_spanning_tree(np.maximum(np.maximum(cores[:, None], cores), distances / alpha)).data)


def of_hdbscan(x, alpha, **options):
    options = {"approx_min_span_tree": False, **options}
    model = hdbscan.HDBSCAN(min_cluster_size=NEIGHBOURS, min_samples=NEIGHBOURS, alpha=alpha, **options).fit(x)
    return np.sort(model.single_linkage_tree_.to_numpy()[:, 2]), model.labels_


def of_sklearn(x, alpha, **options):
    model = sklearn.cluster.HDBSCAN(min_cluster_size=NEIGHBOURS, min_samples=NEIGHBOURS + 1, alpha=alpha, copy=True, **options).fit(x)
    return np.sort(model._single_linkage_tree_["value"]), model.labels_


ways = {
    "hdbscan": lambda alpha: of_hdbscan(points, alpha), "hdbscan, 61 columns": lambda alpha: of_hdbscan(wide, alpha),
    "hdbscan, generic": lambda alpha: of_hdbscan(points, alpha, algorithm="generic"),
    "scikit-learn": lambda alpha: of_sklearn(points, alpha), "scikit-learn, brute": lambda alpha: of_sklearn(points, alpha, algorithm="brute")}
noise = {}
for name, way in ways.items():
    for alpha in ALPHAS:
        heights, labels = way(alpha)
        noise[name, alpha] = int((labels < 0).sum())
        hands = {"as guessed": by_hand(alpha), "as with 1": by_hand(1.0), "in other units": by_hand(alpha, cores_too=True)}
        seen = [each for each, right in hands.items() if np.allclose(heights, right, rtol=1e-9, atol=0)]
        print(f"{name}, alpha {alpha}: heights {', '.join(seen)}; clusters {labels.max() + 1}, noise {noise[name, alpha]}")
        if alpha != 1:
            assert seen == [{"hdbscan": "as with 1", "scikit-learn, brute": "in other units"}.get(name, "as guessed")]
        else:
            assert len(seen) == 3
for name in ("hdbscan", "scikit-learn, brute"):
    assert len({noise[name, alpha] for alpha in ALPHAS}) == 1
for name in ("hdbscan, 61 columns", "hdbscan, generic", "scikit-learn"):
    assert noise[name, 0.5] < noise[name, 1.0] - 10
default = [of_hdbscan(points, alpha, approx_min_span_tree=True) for alpha in ALPHAS]
same = all(np.array_equal(x, y) for each in default[1:] for x, y in zip(each, default[0], strict=True))
print(f"hdbscan with all other defaults: equal heights and labels for alpha {ALPHAS} {same}")
assert same
PY
