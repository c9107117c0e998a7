"""Expectations over one key, given sums over the other keys, by quadrature for every query and pair of heads."""

import numpy as np

from simstudy.kernels.jit import kernel


def integrate(
    sums: np.ndarray, linear: np.ndarray, n: int, nodes: np.ndarray, of_f: np.ndarray, of_products: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return n f (R, Q, H) and n φ (R, Q, P) minus their expansions, from sums S and L (R, Q, H) over n − 1 keys.

    At node j of pair h ≤ g, nodes (Q, P, 5, J) are the kernels K_h and K_g and the weights v, w_h and w_g.  With
    x = 1/((S_h + K_h)(S_g + K_g)), f_h = −Σ_j w_h/(S_h + K_h)/S_h by nodes of the pair (h, h), and
    φ = Σ_j v x + L_g (f_h − Σ_j w_h x)/(2 S_g) + L_h (f_g − Σ_j w_g x)/(2 S_h).

    With a = S/(n − 1) − 1 and l = L/(n − 1), the terms of f are a and a² times ``of_f`` (2, Q, H).  Those of φ are a_h,
    a_g, l_h, l_g, a_h², a_h a_g, a_g², a_h l_h, a_h l_g, a_g l_h and a_g l_g times ``of_products`` (11, Q, P).
    """
    f, found = np.empty(sums.shape), np.empty((*sums.shape[:2], nodes.shape[1]))
    rounded, one, none = sums.astype(nodes.dtype), np.ones(1, nodes.dtype), np.zeros(1, nodes.dtype)
    _integrate(sums, rounded, linear, n, nodes, of_products, one[0], none[0], f, found)
    a = sums / (n - 1.0) - 1.0
    return n * (f - a * (of_f[0] + a * of_f[1])), found


@kernel
def _integrate(sums, rounded, linear, n, nodes, of_products, one, none, f, found):
    for q in range(sums.shape[1]):
        p = 0
        for h in range(sums.shape[2]):
            of = nodes[q, p]
            for r in range(len(sums)):
                s, total = rounded[r, q, h], none
                for j in range(of.shape[1]):
                    total += of[3, j] / (s + of[0, j])
                f[r, q, h] = -total / sums[r, q, h]
            p += sums.shape[2] - h
        p = 0
        for h in range(sums.shape[2]):
            for g in range(h, sums.shape[2]):
                of, by = nodes[q, p], of_products[:, q, p]
                for r in range(len(sums)):
                    s, t, total, first, second = rounded[r, q, h], rounded[r, q, g], none, none, none
                    for j in range(of.shape[1]):
                        x = one / ((s + of[0, j]) * (t + of[1, j]))
                        total += of[2, j] * x
                        first += of[3, j] * x
                        second += of[4, j] * x
                    s, t, c, d = sums[r, q, h], sums[r, q, g], linear[r, q, h], linear[r, q, g]
                    v = total + 0.5 * ((f[r, q, h] - first) / t * d + (f[r, q, g] - second) / s * c)
                    a, b, c, d = s / (n - 1.0) - 1.0, t / (n - 1.0) - 1.0, c / (n - 1.0), d / (n - 1.0)
                    v -= by[2] * c + by[3] * d + a * (by[0] + by[4] * a + by[5] * b + by[7] * c + by[8] * d)
                    found[r, q, p] = n * (v - b * (by[1] + by[6] * b + by[9] * c + by[10] * d))
                p += 1
