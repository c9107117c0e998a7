"""The addressed random numbers: known answers, an independent reference, distributions and invariances."""

import itertools
import math

import numpy as np
import pytest

from simstudy.data.addresses import Role, normals, uniforms
from simstudy.kernels import philox

STREAM = "243f6a8885a308d313198a2e03707344"
ONES = 0xFFFFFFFF


def python_of(function):
    """The undecorated function; with compilation disabled the function is its own."""
    return getattr(function, "py_func", function)


KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
@pytest.mark.parametrize("of", [lambda f: f, python_of], ids=["compiled", "python"])
def test_philox_gives_the_published_answers(of, counter, key, answer):
    words = of(philox.philox)(*(np.uint64(c) for c in counter), *(np.uint64(k) for k in key))
    assert tuple(int(w) for w in words) == answer


def reference_words(counter, key):
    """Philox4x32-10 in Python integers, written from the paper."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (y >> 32) ^ b ^ k, y & ONES, (x >> 32) ^ d ^ m, x & ONES
        k, m = (k + 0x9E3779B9) & ONES, (m + 0xBB67AE85) & ONES
    return a, b, c, d


def reference_pair(role, replicate, row, column):
    """The two uniforms of the word pair that serves a column."""
    key = int(STREAM[:16], 16)
    counter = (column // 4, row, replicate & ONES, (role << 24) | (replicate >> 32))
    words = reference_words(counter, (key & ONES, key >> 32))
    at = column % 4 // 2 * 2
    return tuple((w + 0.5) / 2**32 for w in words[at : at + 2])


def reference_normal(role, replicate, row, column):
    u, v = reference_pair(role, replicate, row, column)
    wave = math.sin if column % 2 else math.cos
    return math.sqrt(-2 * math.log(u)) * wave(2 * math.pi * v)


@pytest.mark.parametrize("first", [0, 3, 2**32 - 1, 2**56 - 2])
def test_numbers_are_those_of_the_reference_at_every_address(first):
    role, n_rows, n_columns = Role.NOISE, 131, 7
    z = normals(STREAM, role, first, 2, n_rows, n_columns)
    u = uniforms(STREAM, role, first, 2, n_rows, n_columns)
    for r in range(2):
        for row in (0, 1, 127, 128, 130):
            for column in range(n_columns):
                expected = reference_normal(role, first + r, row, column)
                assert z[r, column, row] == pytest.approx(expected, rel=0, abs=4e-15)
                assert u[r, column, row] == reference_pair(role, first + r, row, column)[column % 2]


def grid_of_words():
    ends = np.arange(2000, dtype=np.uint64)
    middle = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint64)
    eighths = (np.arange(1, 8, dtype=np.uint64)[:, None] << np.uint64(29)) + ends[:200] - np.uint64(100)
    return np.concatenate([ends, np.uint64(ONES) - ends, middle, eighths.ravel()])


def test_logarithm_is_accurate_to_rounding():
    u = (grid_of_words().astype(float) + 0.5) / 2**32
    exact = -np.log(u.astype(np.longdouble))
    got = np.array([philox.minus_log(x) for x in u])
    assert np.max(np.abs(got / exact - 1)) < 4e-16


def test_sine_and_cosine_are_accurate_to_rounding():
    words = grid_of_words()
    angle = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * (words.astype(np.longdouble) + 0.5) / 2**32
    got = np.array([philox.cos_sin_turn(w) for w in words])
    assert np.max(np.abs(got[:, 0] - np.cos(angle))) < 4e-16
    assert np.max(np.abs(got[:, 1] - np.sin(angle))) < 4e-16


def test_logarithm_of_single_precision_is_accurate_relatively():
    words = grid_of_words()
    exact = -2 * np.log((words.astype(np.longdouble) + 0.5) / 2**32)
    got = np.array([philox.minus_two_log_float32(np.uint32(w)) for w in words])
    assert np.max(np.abs(got / exact - 1)) < 3e-7


def test_single_precision_follows_double_at_the_edges_of_quarters():
    words = grid_of_words()
    for radius in (0, ONES, 2**31, 3037000499, 3037000500):
        found = np.array([philox.box_muller_float32(np.uint64(radius), w) for w in words[::7]])
        exact = np.array([philox.box_muller(np.uint64(radius), w) for w in words[::7]])
        assert np.max(np.abs(found / exact - 1)) < 5e-7


@pytest.mark.parametrize("pair", [philox.box_muller, philox.box_muller_float32])
def test_extreme_words_give_finite_normals(pair):
    for radius in (0, ONES):
        for angle in (0, 2**30, 2**31, ONES):
            x, y = pair(np.uint64(radius), np.uint64(angle))
            assert 0 < math.hypot(x, y) < math.sqrt(66 * math.log(2)) + 1e-6


def test_smaller_sizes_are_prefixes():
    whole = normals(STREAM, Role.KEYS, 5, 1, 700, 23)
    for n_rows in (1, 2, 7, 63, 64, 65, 127, 128, 129, 255, 257, 699):
        for n_columns in (1, 2, 3, 4, 5, 22):
            part = normals(STREAM, Role.KEYS, 5, 1, n_rows, n_columns)
            np.testing.assert_array_equal(part, whole[:, :n_columns, :n_rows])


@pytest.mark.parametrize("draw", [normals, uniforms])
def test_replicates_do_not_depend_on_their_grouping(draw):
    whole = draw(STREAM, Role.KEYS, 0, 30, 37, 5)
    for edges in ([0, 30], [0, 1, 2, 30], [0, 7, 19, 30], list(range(31))):
        parts = [draw(STREAM, Role.KEYS, a, b - a, 37, 5) for a, b in itertools.pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_single_precision_shows_the_same_numbers_to_its_rounding():
    double = normals(STREAM, Role.KEYS, 0, 3, 200_000, 6)
    single = normals(STREAM, Role.KEYS, 0, 3, 200_000, 6, "float32")
    assert single.dtype == np.float32
    assert np.abs(single / double - 1).max() < 5e-7
    # Negative control: not merely close where numbers are large.
    assert np.abs(double).min() < 1e-5
    assert not np.abs(np.float32(single + np.float32(1e-7)) / double - 1).max() < 5e-7


def test_single_precision__gives_known_answers():
    single = normals(STREAM, Role.KEYS, 2**40, 1, 2, 5, "float32")[0, :, 1]
    # The last bit depends on whether the processor fuses products with sums.
    np.testing.assert_allclose(single, [0.405500113, -0.446273672, 0.775317264, -2.535267728, 0.367335367], rtol=3e-7)


def test_distinct_addresses_give_distinct_numbers():
    draws = [normals(stream, role, first, 2, 50, 8) for stream in (STREAM, "0" * 32, "1" + "0" * 31, "0" * 15 + "1")
             for role in Role for first in (0, 2**32, 2**55)]  # fmt: skip
    numbers = np.concatenate([d.ravel() for d in draws])
    # About N^2 / 2^65 = 1e-10 pairs of equal normals are expected among N = 57 600 by chance.
    assert np.unique(numbers).size == numbers.size


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (2**56, 1), (2**56 - 1, 2)])
def test_replicates_beyond_the_address_space_are_refused(first, count):
    with pytest.raises(ValueError, match="replicates"):
        normals(STREAM, Role.KEYS, first, count, 1, 1)
