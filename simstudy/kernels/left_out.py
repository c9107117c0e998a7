"""Averages over one key that is left out, given sums over the others, by nodes for every query and pair of heads."""

from __future__ import annotations

import numpy as np

from simstudy.kernels.jit import kernel


def integrate(
    sums: np.ndarray, linear: np.ndarray, nodes: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return f (R, Q, H) and φ (R, Q, P) of sums of kernels S and L (R, Q, H) over all keys but one.

    At node j of pair h ≤ g (``rows``, ``columns``) nodes (Q, P, 5, J) are the kernels K_h and K_g and the weights v,
    w_h and w_g.  With x = 1/((S_h + K_h)(S_g + K_g)), f_h = −Σ_j w_h/(S_h + K_h)/S_h, of the pair of h with itself, and
    φ = Σ_j v x + L_g (f_h − Σ_j w_h x)/(2 S_g) + L_h (f_g − Σ_j w_g x)/(2 S_h).
    """
    f, found = np.empty(sums.shape), np.empty((*sums.shape[:2], len(rows)))
    _integrate(np.ascontiguousarray(sums), np.ascontiguousarray(linear), nodes, rows, columns, f, found)
    return f, found


@kernel
def _integrate(sums, linear, nodes, rows, columns, f, found):
    n_replicates, n_queries, _ = sums.shape
    for r in range(n_replicates):
        for q in range(n_queries):
            for p in range(rows.size):
                h = rows[p]
                if h == columns[p]:
                    s, of, total = sums[r, q, h], nodes[q, p], 0.0
                    for j in range(of.shape[1]):
                        total += of[3, j] / (s + of[0, j])
                    f[r, q, h] = -total / s
            for p in range(rows.size):
                h, g, of, v, first, second = rows[p], columns[p], nodes[q, p], 0.0, 0.0, 0.0
                s, t = sums[r, q, h], sums[r, q, g]
                for j in range(of.shape[1]):
                    x = 1.0 / ((s + of[0, j]) * (t + of[1, j]))
                    v += of[2, j] * x
                    first += of[3, j] * x
                    second += of[4, j] * x
                first, second = (f[r, q, h] - first) / t, (f[r, q, g] - second) / s
                found[r, q, p] = v + 0.5 * (first * linear[r, q, g] + second * linear[r, q, h])
