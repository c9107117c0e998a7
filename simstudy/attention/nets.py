"""Expectations over one key without closed forms: by randomised nets, or by sums over rows that keys are drawn from.

Each net, a scrambled Sobol sequence (Owen 1995), gives one value of every expectation, without bias.  Nets of a cell
are independent of one another.  Cells of one seed and batch size have the same nets, as they have the same replicates:
their errors are paired.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simstudy.data.addresses import normals, uniforms
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.data.regression import at_queries, at_rows, evaluate
from simstudy.data.training import shape_keys
from simstudy.design.settings.cell import N_POINTS, Cell
from simstudy.design.settings.processes import FileKeys

Array = NDArray[np.float64]

N_NETS = 64
"""As many as the fewest blocks of a verdict, so that errors of known means have as many degrees of freedom."""


class OneKey(NamedTuple):
    """Means over the points of each net, K_h being kernels times exp(−offset) and M = m − m(x_q).

    Attributes
    ----------
    target : (query,)
        m(x_q).
    offset : (query, head)
    kernel, gap : (net, query, head)
        Of K_h and K_h M.
    product, product_gap, product_square, first, fourth : (net, query, head, head)
        Of K_h K_g, K_h K_g M, K_h K_g M², K_h² K_g and K_h² K_g².
    eighth : (net, query, head)
        Of K_h⁸.
    """

    target: Array
    offset: Array
    kernel: Array
    gap: Array
    product: Array
    product_gap: Array
    product_square: Array
    first: Array
    fourth: Array
    eighth: Array


def one_key(cell: Cell) -> OneKey:
    """Return means over the nets of a cell; one net, of all rows, where keys are drawn from the rows of data."""
    projections, targets = key_projections(cell) / cell.bandwidth, at_queries(cell)
    images = np.einsum("qj,hjk->qhk", query_points(cell), query_projections(cell)) / cell.bandwidth
    n_queries, n_heads = images.shape[:2]
    offset, means = np.zeros((n_queries, n_heads)), []
    for x, m in _nets(cell):
        projected = projections.swapaxes(1, 2) @ x
        means.append([np.zeros((n_queries, n_heads, *[n_heads] * (1 < field < 7))) for field in range(8)])
        for query, image in enumerate(images):
            logits = (image[:, None] @ projected)[:, 0]
            if cell.estimator.logits == "distance":
                logits -= 0.5 * ((projected**2).sum(axis=1) + (image**2).sum(axis=1, keepdims=True))
            if len(means) == 1:
                offset[query] = logits.max(axis=1)
            # What overflows is not finite, and such a cell stays plain.
            with np.errstate(over="ignore", invalid="ignore"):
                k = np.exp(logits - offset[query, :, None])
                moved, square = k * (m - targets[query]), k**2
                found = (k.sum(axis=1), moved.sum(axis=1), k @ k.T, k @ moved.T, moved @ moved.T, square @ k.T,
                         square @ square.T, (square**4).sum(axis=1))  # fmt: skip
            for mean, each in zip(means[-1], found, strict=True):
                mean[query] = each / len(m)
    return OneKey(targets, offset, *map(np.stack, zip(*means, strict=True)))


def _nets(cell: Cell) -> Iterator[tuple[Array, Array]]:
    """Yield the points of each net as keys (feature, point), with the regression function there (point,)."""
    data = cell.data
    if isinstance(data.key_distribution, FileKeys):
        yield cell.rows.keys.T, at_rows(cell)
        return
    # Imported here: it takes long, and most cells have closed forms.
    from scipy.stats import qmc

    stream = cell.simulation.seed, cell.simulation.batch_size
    for seed in np.random.SeedSequence(stream).spawn(N_NETS):
        net = qmc.Sobol(1 + data.n_features, rng=np.random.default_rng(seed)).random(N_POINTS // N_NETS)
        # Points are multiples of 2^-30: none may be 0.
        latent, u = np.split(net.T[None] + 2.0**-31, [1], axis=1)
        made = {uniforms: latent, normals: special.ndtri(latent)}
        x = shape_keys(data.key_distribution, special.ndtri(u), made.__getitem__)[0]
        yield x, evaluate(data.regression, np.ascontiguousarray(x))
