"""One softmax head whose temperature is best at some number of keys, used at more of them.

A key has one coordinate v along the query, and logits are sharpness times v: of keys on the unit sphere v is a cosine,
and the sharpness is key length² over temperature; of Gaussian keys v is standard normal, and the sharpness is the
standard deviation of logits at the query.  A target is a sum of independent components.  Of each, three things are
known at v: its mean F(v), its mean square G(v), and its value T at the query.  On the sphere a random harmonic of
degree l has F = P_l, G = T = 1 by the addition theorem.  Of Gaussian keys and a random linear function, F = v,
G = v² + d - 1, T = |x|, in units of 1/d.  With K = exp(sharpness v) and 1/S the integral of exp(-tS) over t, the risk

    sum_c s_c {T² - 2 T E[sum w F] + E[sum w² G] + E[sum_{i≠j} w_i w_j F_i F_j]} + E sum w²

is an integral over t of products of means over one key.
"""

import functools
import math

import numpy as np
from scipy import optimize, special

PROBLEMS = {  # keys, and shares of harmonics of degree 1, 2, … in the variance of the target
    "one length, degree 1": ("unit", (1.0,)),
    "one length, degree 3": ("unit", (0.0, 0.0, 1.0)),
    "one length, degrees 1 to 3": ("unit", (0.6, 0.3, 0.1)),
    "Gaussian keys": ("gaussian", (1.0,)),
}
RULES = {  # factor of logits at n keys, s times as many as those of the best temperature
    "unchanged": lambda n, s, d: 1.0,
    "YaRN": lambda n, s, d: (0.1 * math.log(s) + 1.0) ** 2,
    "ln n": lambda n, s, d: math.log(n) / math.log(n / s),
    "√ln n": lambda n, s, d: math.sqrt(math.log(n) / math.log(n / s)),
    "(ln n)²": lambda n, s, d: (math.log(n) / math.log(n / s)) ** 2,
    "s^(2/(d+3))": lambda n, s, d: s ** (2.0 / (d + 3.0)),
    "s^(2/(d−1))": lambda n, s, d: s ** (2.0 / (d - 1.0)),
    "√(2 ln n) − 1.55": lambda n, s, d: (
        (math.sqrt(2.0 * math.log(n)) - 1.55) / (math.sqrt(2.0 * math.log(n / s)) - 1.55)
    ),
}
FARTHEST, CELLS = 8, 1024  # normal numbers beyond have a probability below 1e-14; cells of a table in one unit
STEP = 0.4  # of log t: sums over exp(-tS) (tS)² are 1 within 1e-7
PANEL = np.polynomial.legendre.leggauss(16)


def keys_along_the_query(draw, n_keys, head_dim, problem="one length, degree 1"):
    """Coordinates of keys along the query (replicate, key), and the risk at the best temperature for so many keys."""
    places = np.stack([rng.standard_normal(n_keys) for rng in draw.generators()])
    if PROBLEMS[problem][0] == "unit":
        places = np.stack([cosines(row, head_dim) for row in places])
    best = best_sharpness(problem, head_dim, n_keys)
    return {"places": places, "least": risk_given_logits(places, best, problem, head_dim)}


def cosines(normals, dimension):
    """Cosines of uniform directions with a given one, of the ranks of normal numbers, to 1e-6."""
    table = quantiles(dimension)
    place = (np.clip(normals, -FARTHEST, FARTHEST) + FARTHEST) * CELLS
    number = np.minimum(place.astype(np.int64), len(table) - 2)
    low = table[number]
    return low + (place - number) * (table[number + 1] - low)


@functools.lru_cache(maxsize=64)
def quantiles(dimension):
    """Cosines of normal numbers from -8 to 8; (1 + cosine)/2 is beta distributed."""
    lower, half = np.arange(-FARTHEST * CELLS, 0) / CELLS, (dimension - 1.0) / 2.0
    cosine = 2.0 * special.betaincinv(half, half, special.ndtr(lower)) - 1.0
    return np.concatenate([cosine, [0.0], -cosine[::-1]])


def tempered_head(
    places, least, n_keys, head_dim, problem="one length, degree 1", tuned_at=4096, rule="unchanged", bandwidth=1.0
):
    """Risk of the head, given its logits, and what it exceeds the risk at the best temperature by, in percent."""
    risk = risk_given_logits(places, sharpness(n_keys, head_dim, problem, tuned_at, rule, bandwidth), problem, head_dim)
    unit = exact_risk(problem, head_dim, n_keys, best_sharpness(problem, head_dim, n_keys))
    return {"tempered_risk": risk, "excess_risk": 100.0 * (risk - least) / unit}


def sharpness(n_keys, head_dim, problem, tuned_at, rule, bandwidth):
    """Sharpness that is best at ``tuned_at`` keys, times the factor of a rule, over the squared bandwidth."""
    factor = RULES[rule](n_keys, n_keys / tuned_at, head_dim)
    return best_sharpness(problem, head_dim, tuned_at) * factor / bandwidth**2


def risk_given_logits(places, sharpness, problem, dimension):
    """Mean squared error of the head at each replicate (replicate,), given where keys lie along the query."""
    return np.array([risk_of_one(row, sharpness, problem, dimension) for row in places])  # a row stays in the cache


def risk_of_one(places, sharpness, problem, dimension):
    """The same of one replicate, a number."""
    weights = np.exp(sharpness * (places - places.max()))
    weights /= weights.sum()
    squares = weights * weights
    risk = noise = squares.sum()
    keys, shares = PROBLEMS[problem]
    if keys == "gaussian":
        along = weights @ places - math.sqrt(dimension)
        return noise + (along**2 + (dimension - 1.0) * noise) / dimension
    before, here = 1.0, places
    for degree, share in enumerate(shares, start=1):
        if share:
            risk += share * ((weights @ here - 1.0) ** 2 + noise - squares @ (here * here))
        if degree < len(shares):  # normalised Gegenbauer polynomials, by their recurrence
            power = degree + dimension - 2.0
            before, here = here, ((power + degree) * places * here - degree * before) / power
    return risk


def theory(n_keys, head_dim, problem="one length, degree 1", tuned_at=4096, rule="unchanged", bandwidth=1.0):
    """Exact risk, and its excess over the least in percent."""
    found = exact_risk(problem, head_dim, n_keys, sharpness(n_keys, head_dim, problem, tuned_at, rule, bandwidth))
    least = exact_risk(problem, head_dim, n_keys, best_sharpness(problem, head_dim, n_keys))
    return {"tempered_risk": found, "excess_risk": 100.0 * (found / least - 1.0)}


@functools.lru_cache(maxsize=4096)
def best_sharpness(problem, dimension, n_keys, signal=1.0):
    """Sharpness of least exact risk; ``signal`` is the variance of the target, that of the noise is 1."""
    # The textbook's optimum grows with n times the signal: this is far beyond it.
    power = (n_keys * max(signal / 4.0, 1.0)) ** (2.0 / (dimension + 3.0))
    unit = PROBLEMS[problem][0] == "unit"
    largest = 30.0 * (dimension + power) if unit else 1.0 + math.sqrt(2.0 * math.log(n_keys))
    found = optimize.minimize_scalar(
        lambda x: exact_risk(problem, dimension, n_keys, math.exp(x), signal),
        bounds=(math.log(0.02), math.log(largest)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(found.x)


@functools.lru_cache(maxsize=4096)
def exact_risk(problem, d, n_keys, sharpness, signal=1.0):
    """Mean squared error over keys, noise and random targets, by quadrature.

    ArithmeticError if the same integrals give E sum w or E (sum w)², which are 1, with an error above 1e-5.
    """
    keys, shares = PROBLEMS[problem]
    unit = keys == "unit"
    # Nodes of v and their probabilities: panels narrower than what exp(-tK) needs.
    low, high = (0.0, math.pi) if unit else (-10.0, 10.0 + 2.0 * sharpness)
    ends = np.linspace(low, high, 1 + max(24, math.ceil(0.3 * sharpness * (high - low))))
    middle, half = (ends[1:] + ends[:-1]) / 2.0, np.diff(ends) / 2.0
    nodes = (middle[:, None] + half[:, None] * PANEL[0]).ravel()
    density = (d - 2.0) * np.log(np.sin(nodes)) if unit else -0.5 * nodes**2
    weights = np.exp(density) * (half[:, None] * PANEL[1]).ravel()
    kept = weights > 1e-300
    nodes, weights = (np.cos(nodes) if unit else nodes)[kept], weights[kept] / weights.sum()
    # From where tS is small up to where no key is left.
    logits = sharpness * nodes
    first = math.log(1e-9 / n_keys) - special.logsumexp(logits, b=weights)
    log_t = np.arange(first, math.log(50.0) - logits.min(), STEP)
    cut = np.searchsorted(
        [n_keys * -np.expm1(-np.exp(np.minimum(t + logits, 700.0))) @ weights for t in log_t[::5]], 50
    )
    z = np.exp(np.minimum(log_t[: 5 * (cut + 1), None] + logits, math.log(700.0)))
    left = np.exp(-z)
    once, twice = z * left, z * z * left
    power = np.log1p(-np.minimum(-np.expm1(-z) @ weights, 1.0 - 1e-16))
    one = STEP * n_keys * np.exp((n_keys - 1) * power)
    two = STEP * n_keys * (n_keys - 1) * np.exp((n_keys - 2) * power)

    def squared_sum(mean, square):  # E (sum w X)², X of given mean and mean square at the nodes
        return one @ (twice @ (weights * square)) + two @ (once @ (weights * mean)) ** 2

    ones = np.ones_like(nodes)
    checks = one @ (once @ weights), squared_sum(ones, ones)
    if max(abs(check - 1.0) for check in checks) > 1e-5:
        raise ArithmeticError(
            f"{problem}, d = {d}, sharpness {sharpness:g}, {n_keys} keys: integrals of 1 are {checks}"
        )
    if unit:
        a = (d - 3.0) / 2.0
        parts = [
            (share, 1.0, special.eval_jacobi(degree, a, a, nodes) / special.eval_jacobi(degree, a, a, 1.0), ones)
            for degree, share in enumerate(shares, start=1)
        ]
    else:
        parts = [(1.0 / d, math.sqrt(d), nodes, nodes**2 + d - 1.0)]
    risk = one @ (twice @ weights)
    for scale, target, mean, square in parts:
        along = one @ (once @ (weights * mean))
        risk += signal * scale * (target**2 - 2.0 * target * along + squared_sum(mean, square))
    return float(risk)
