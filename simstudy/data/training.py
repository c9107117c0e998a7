"""Training data of a cell: keys, noise of unit variance, and noise variances for any range of replicates.

Everything is a pure function of ``(cell.data_id, replicate, row, column)``.  Hence cells that differ only in the
estimator, the heads or the noise level have the same data.  Fewer keys are a prefix of the keys, and except on the
sphere fewer features are a prefix of the features.  Bits do not depend on how replicates are grouped; so sums over
features are computed feature by feature, as the order of a library's sum may depend on the shape of an array.
"""

from typing import Any

import numpy as np
from scipy import special

from simstudy.data.addresses import Role, draw, normals, uniforms
from simstudy.design.settings import choices
from simstudy.design.settings.cell import Cell
from simstudy.kernels.devices import on_cuda
from simstudy.kernels.elementary import wave


def draw_keys(cell: Cell, first: int, count: int, n_coordinates: int = 0) -> Any:
    """Return keys X (R, d, n), or uncorrelated coordinates of them; as `Drawn` if a GPU draws independent normals."""
    keys, dtype, rows = cell.data.key_distribution, cell.simulation.dtype, (first, count, cell.data.n_keys)
    if isinstance(keys, choices.FileKeys):
        return cell.rows.keys.T.astype(dtype)[:, draw_rows(cell, first, count)].swapaxes(0, 1)
    n_features, structure = n_coordinates or cell.data.n_features, getattr(keys, "structure", "")
    if structure == "identity" or (structure and n_coordinates):
        return (draw if on_cuda() else normals)(cell.data_id, Role.KEYS, *rows, n_features, dtype)
    # Some keys need a further random number each.
    z, latent = normals(cell.data_id, Role.KEYS, *rows, n_features), (cell.data_id, Role.KEY_LATENT, *rows, 1)
    match keys:
        case choices.GaussianKeys(structure="equicorrelated"):
            # A common factor, so that features do not change when further features are added.
            z = np.sqrt(keys.correlation) * normals(*latent) + np.sqrt(1.0 - keys.correlation) * z
        case choices.GaussianKeys():
            innovation = np.sqrt((1.0 - keys.correlation) * (1.0 + keys.correlation))
            for j in range(1, n_features):
                z[:, j] = keys.correlation * z[:, j - 1] + innovation * z[:, j]
        case choices.SphereKeys():
            square = np.zeros_like(z[:, 0])
            for j in range(n_features):
                square += z[:, j] * z[:, j]
            z *= (keys.radius / np.sqrt(square))[:, None]
        case choices.Student():
            # z sqrt(df / C) has covariance df / (df - 2) I for C ~ chi-square(df), by inverse distribution function.
            z *= np.sqrt((keys.df - 2.0) / (2.0 * special.gammaincinv(0.5 * keys.df, uniforms(*latent))))
        case choices.MixtureKeys():
            component = np.floor(keys.n_components * uniforms(*latent)[:, 0])
            for j in range(keys.n_components):
                z[:, j] += keys.separation * ((component == j) - 1.0 / keys.n_components)
        case choices.AutoregressiveKeys():
            innovation = np.sqrt((1.0 - keys.coefficient) * (1.0 + keys.coefficient))
            # Variance is stationary from the first key on; the filter runs along keys, so that fewer are a prefix.
            z[..., 0] /= innovation
            # Imported here, as it takes half a second, which most commands do not need.
            from scipy import signal

            z = signal.lfilter([innovation], [1.0, -keys.coefficient], z, axis=-1)
    return z.astype(dtype)


def draw_rows(cell: Cell, first: int, count: int) -> np.ndarray:
    """Return the numbers (R, n) of the rows of the user's data that are the keys of these replicates.

    If rows are a population, each batch draws from a bootstrap sample of them.
    """
    keys, n, size = cell.data.key_distribution, cell.data.n_keys, len(cell.rows.keys)
    if isinstance(keys, choices.FileKeys) and keys.sampling == "without":
        order = uniforms(cell.data_id, Role.KEYS, first, count, size, 1)[:, 0]
        return np.argsort(order, axis=1, kind="stable")[:, :n]
    drawn = _any_rows(size, (cell.data_id, Role.KEYS, first, count, n, 1))
    if "rows" not in cell.population:
        return drawn
    return _any_rows(size, (cell.data_id, Role.OUTER_BOOTSTRAP, cell.geometry[0], 1, size, 1))[0, drawn]


def _any_rows(size: int, address: tuple) -> np.ndarray:
    """Return row numbers (R, n), uniform among ``size`` rows."""
    return np.floor(size * uniforms(*address)[:, 0]).astype(np.intp)


def draw_noise(cell: Cell, first: int, count: int) -> np.ndarray:
    """Return noise (R, n) of unit variance, to be multiplied by the root of :func:`noise_variance`.

    sqrt(df (U^(-2/df) - 1)) cos(2 pi V) is Student-t for independent uniforms U, V (Bailey 1994, Mathematics of
    Computation 62).  As U is at least 2^-33, its variance lacks 1 % at df = 2.5 and 0.05 % at df = 3, in the far tail.
    """
    noise, n = cell.data.noise, cell.data.n_keys
    if isinstance(noise, choices.Student):
        u = uniforms(cell.data_id, Role.NOISE, first, count, n, 2)
        radius = np.sqrt((noise.df - 2.0) * np.expm1(np.log(u[:, 0]) * (-2.0 / noise.df)))
        return (radius * wave("cos", 2.0 * np.pi * u[:, 1])).astype(cell.simulation.dtype)
    if isinstance(noise, choices.ResidualNoise):
        residuals = cell.rows.residuals
        drawn = residuals[_any_rows(len(residuals), (cell.data_id, Role.NOISE, first, count, n, 1))]
        return (drawn / residuals.std()).astype(cell.simulation.dtype)
    return normals(cell.data_id, Role.NOISE, first, count, n, 1, cell.simulation.dtype)[:, 0]


def noise_variance(cell: Cell, keys: np.ndarray) -> np.ndarray:
    """Return Var(Y - m(X) | X), (R, n), at keys (R, d, n)."""
    noise, square, first = cell.data.noise, cell.data.noise_sd**2, keys[:, 0]
    if isinstance(noise, choices.ResidualNoise):
        return np.full_like(first, 0.0 if noise.paired else square * cell.rows.residuals.std() ** 2)
    if isinstance(noise, choices.HeteroscedasticNoise):
        return square * ((1.0 + noise.strength * first * first) / (1.0 + noise.strength))
    return np.full_like(first, square)
