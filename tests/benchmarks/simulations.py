"""What functions of the user's own cost in a study beside the same loop by hand: the first example of SimDesign.

Samples of 30 to 240 from a normal and a chi-squared law of expectation 3, and four estimates of it: mean, two trimmed
means and median.  Measured are bias and mean squared error.
"""

import inspect
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from limits import Row, interleaved, ratio

from simstudy import study
from simstudy.design.document import Design
from simstudy.design.load import Study, load_design
from simstudy.replicates.batch import simulate_batch

SIZES, BATCH = (30, 60, 120, 240), 2048


def sample(draw, n, law):
    """Values of expectation 3."""
    z = draw.normals(n) if law == "normal" else draw.normals(n, 3)
    return {"x": 3.0 + z if law == "normal" else (z**2).sum(axis=-1), "truth": 3.0}


def mean(x):
    return {"estimate": x.mean(axis=-1)}


def trimmed(x, share=0.1):
    """The mean without the smallest and the largest tenth."""
    cut = int(share * x.shape[-1])
    return {"estimate": np.sort(x, axis=-1)[..., cut : x.shape[-1] - cut].mean(axis=-1)}


def trimmed_more(x):
    """The mean without the smallest and the largest fifth."""
    return trimmed(x, 0.2)


def median(x):
    return {"estimate": np.median(x, axis=-1)}


def jackknifed(x):
    """The trimmed mean, corrected by those without one value each: milliseconds for a sample of 240."""
    without = [trimmed(np.delete(x, i))["estimate"] for i in range(len(x))]
    return {"estimate": len(x) * trimmed(x)["estimate"] - (len(x) - 1) * np.mean(without)}


def by_hand(
    methods: Sequence[Callable[..., Any]], sizes: Sequence[int], replicates: int, one_by_one: bool
) -> np.ndarray:
    """Bias and mean squared error, (size, law, method, 2)."""
    found, rng = [], np.random.Generator(np.random.Philox(0))
    draw = SimpleNamespace(normals=lambda *shape: rng.standard_normal((BATCH, *shape)))
    for n, law in itertools.product(sizes, ("normal", "chi_squared")):
        x = np.concatenate([sample(draw, n, law)["x"] for _ in range(replicates // BATCH)])
        for method in methods:
            estimates = np.array([method(each)["estimate"] for each in x]) if one_by_one else method(x)["estimate"]
            found.append(((estimates - 3.0).mean(), ((estimates - 3.0) ** 2).mean()))
    return np.reshape(found, (len(sizes), 2, len(methods), 2))


def design_of(folder: Path, methods: Sequence[Callable[..., Any]], sizes: Sequence[int], replicates: int,
              one_by_one: bool) -> Design:  # fmt: skip
    """Return the same as a design."""
    path = folder / "functions.py"
    functions = dict.fromkeys([sample, trimmed, *methods])  # some call another
    path.write_text("import numpy as np\n" + "\n".join(map(inspect.getsource, functions)))
    made = Study("estimators", title="t", aim="a").simulation(batch_size=BATCH)
    made.functions(path=str(path), process="sample", one_by_one=one_by_one, measures=["mean_squared_error"])
    made.precision(min_replicates=replicates, max_replicates=replicates, absolute_mcse={})
    levels = {"n": list(sizes), "law": ["normal", "chi_squared"], "method": [method.__name__ for method in methods]}
    made.grid("all", levels)
    return load_design(made, trust=[path])


def simulation_rows(rounds: int) -> Iterator[Row]:
    """Time of the loop by hand over the time of the batches, and over the whole run with its files."""
    yield from _rows(rounds, (mean, trimmed, trimmed_more, median), SIZES, 5 * BATCH, one_by_one=False)
    yield from _rows(min(rounds, 3), (jackknifed,), (240,), BATCH, one_by_one=True)  # 15 s each


def _rows(rounds: int, methods: Sequence[Callable[..., Any]], sizes: Sequence[int], replicates: int, *,
          one_by_one: bool) -> Iterator[Row]:  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        design = design_of(Path(name), methods, sizes, replicates, one_by_one)
        cells, runs = [planned.cell for planned in design.cells], itertools.count()
        jobs: list[Callable[[], object]] = [
            lambda: by_hand(methods, sizes, replicates, one_by_one),
            lambda: [simulate_batch(cells, batch) for batch in range(replicates // BATCH)],
            lambda: study.complete(design, output=Path(name) / str(next(runs)), executor="serial"),
        ]
        hand, batches, whole = interleaved(jobs, rounds)
    size = f"{len(cells)} cells, {replicates} replicates, {'one by one' if one_by_one else 'vectorised'}"
    yield Row("simulation", size, "by hand over batches", ratio(hand, batches), "1")
    yield Row("simulation", size, "by hand over a whole run", ratio(hand, whole), "1")
    yield Row("simulation", size, "by hand", 1e6 * min(hand) / replicates / len(cells), "µs a replicate")
