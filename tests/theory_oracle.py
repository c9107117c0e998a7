"""Leading order by brute force: plain sums over a dense grid, nothing tilted, nothing shared.

Never imports simstudy.theory.
"""

import numpy as np
from builders import minimal_cell


def make_cell(n_keys=100_000, n_features=2, n_heads=2, head_dim=1, logits="distance", bandwidth=0.8, **data):
    shape = {"n_keys": n_keys, "n_features": n_features, "n_heads": n_heads, "head_dim": head_dim}
    return minimal_cell(**shape, arrangement="haar", logits=logits, bandwidth=bandwidth, **data)


def regression_values(record, points):
    """m at points (N, d), coordinate by coordinate as the schema words it."""
    x, amplitude = points.T, getattr(record, "amplitude", 1.0)
    match record.kind:
        case "zero":
            return np.zeros(len(points))
        case "linear":
            return sum(coefficient * x[j] for j, coefficient in enumerate(record.coefficients))
        case "quadratic":
            coefficients = record.coefficients * len(x) if len(record.coefficients) == 1 else record.coefficients
            return sum(coefficient * x[j] ** 2 for j, coefficient in enumerate(coefficients))
        case "interaction":
            first, second = record.coordinates
            return amplitude * x[first - 1] * x[second - 1]
        case "ridge":
            along = sum(u * x[j] for j, u in enumerate(record.direction)) / np.linalg.norm(record.direction)
            return amplitude * getattr(np, record.wave)(record.frequency * along)
        case "additive":
            fall = {
                "none": lambda j: 1.0,
                "exponential": lambda j: np.exp(-record.rate * (j - 1)),
                "power": lambda j: float(j) ** -record.rate,
            }[record.decay]
            active, wave = range(1, (record.n_active or len(x)) + 1), getattr(np, record.wave)
            return sum(amplitude * fall(j) * wave(record.frequency * x[j - 1]) for j in active)
        case "sum":
            return sum(regression_values(term, points) for term in record.terms)


def variance_values(data, points):
    if data.noise.kind != "heteroscedastic":
        return np.full(len(points), data.noise_sd**2)
    strength = data.noise.strength
    return data.noise_sd**2 * (1 + strength * points[:, 0] ** 2) / (1 + strength)


def covariance_matrix(keys, n_features):
    whole, apart = np.eye(n_features), np.abs(np.subtract.outer(range(n_features), range(n_features)))
    match keys.kind, getattr(keys, "structure", ""):
        case "sphere", _:
            return whole * keys.radius**2 / n_features
        case "mixture", _:
            centres = keys.separation * (whole[: keys.n_components] - whole[: keys.n_components].mean(axis=0))
            return whole + centres.T @ centres / keys.n_components
        case _, "equicorrelated":
            return np.where(apart, keys.correlation, 1.0)
        case _, "autoregressive":
            return keys.correlation**apart
    return whole


def gaussian_grid(covariance, extent=10.0, step=0.1):
    """Nodes (N, d) and weights (N,) of the trapezoid rule for N(0, covariance)."""
    axis = np.arange(-extent, extent + step / 2, step)
    nodes = np.stack(np.meshgrid(*[axis] * len(covariance), indexing="ij"), axis=-1).reshape(-1, len(covariance))
    weights = np.exp(-0.5 * np.sum(nodes * np.linalg.solve(covariance, nodes.T).T, axis=1))
    return nodes, weights / weights.sum()


def kernel_values(cell, key_projections, query_projections, query, points):
    """Kernels (H, N) of heads (H, d, p) at a query, of keys at points (N, d)."""
    pulled, keys = np.einsum("hdp,d->hp", query_projections, query)[:, None], points @ key_projections
    if cell.estimator.logits == "dot_product":
        return np.exp(np.sum(keys * pulled, axis=2) / cell.bandwidth**2)
    squares, normaliser = np.sum((keys - pulled) ** 2, axis=2) / cell.bandwidth**2, cell.estimator.normaliser
    if normaliser.kind == "compact":
        return np.maximum(1 - squares / normaliser.window**2, 0) ** normaliser.power
    return np.exp(-squares / 2)


def discrepancy(prediction, cell, key_projections, query_projections, queries, **grid):
    """Largest error of a leading order, relative to the scale at which bias and covariance matter at this n."""
    points, weights = gaussian_grid(covariance_matrix(cell.data.key_distribution, cell.data.n_features), **grid)
    m, v, n = regression_values(cell.data.regression, points), variance_values(cell.data, points), cell.data.n_keys
    target = regression_values(cell.data.regression, queries)
    np.testing.assert_allclose(prediction.target, target, atol=1e-14)
    bias, covariance = [], []
    for query, truth in zip(queries, target, strict=True):
        kernels = kernel_values(cell, key_projections, query_projections, query, points)
        kernels /= (kernels @ weights)[:, None]
        smooth = kernels @ (weights * m)
        errors = m - smooth[:, None]
        bias.append(smooth - truth - (kernels**2 * errors) @ weights / n)
        moved = kernels * errors
        noise = np.einsum("hx,gx,x->hg", kernels, kernels, weights * v, optimize=True)
        covariance.append((noise + np.einsum("hx,gx,x->hg", moved, moved, weights, optimize=True)) / n)
    variance = np.abs(prediction.covariance).max()
    bias_error = np.abs(prediction.bias - bias).max() / np.sqrt(variance)
    return max(bias_error, np.abs(prediction.covariance - covariance).max() / variance)


def directions(*degrees):
    """Heads of dimension 1 in the plane, shape (H, 2, 1)."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)[:, :, None]
