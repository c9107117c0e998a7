"""Moments of the weights of heads with Gaussian logits, against drawing them and against what is known."""

import numpy as np
import pytest

from simstudy.theory import logit_moments


def drawn_gram(covariance, n_keys, n_draws, rng, known=None):
    factor = np.linalg.cholesky(covariance + 1e-14 * np.trace(covariance) * np.eye(len(covariance)))
    logits = rng.standard_normal((n_draws, n_keys, len(covariance))) @ factor.T
    if known is not None:
        logits = np.concatenate([logits, np.broadcast_to(known.T, (n_draws, *known.T.shape))], axis=1)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    grams = np.einsum("rih,rig->rhg", weights, weights)
    return grams.mean(axis=0), grams.std(axis=0, ddof=1) / np.sqrt(n_draws)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_moments__are_those_of_drawn_logits(seed, sinks):
    """Known tokens, as attention sinks: from far below the sum of all others to far above."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((int(rng.integers(2, 4)), int(rng.integers(1, 4))))
    covariance, n_keys = 10.0 ** rng.uniform(-1, 1.2) * root @ root.T / len(root), int(rng.integers(2, 80))
    known = rng.uniform(-2, 14, (len(covariance), int(rng.integers(1, 4)))) if sinks else None
    found = logit_moments(covariance, n_keys, known=known)
    mean, error = drawn_gram(covariance, n_keys, 20_000, rng, known)
    assert not found.reason
    assert np.abs((found.gram - mean) / (error + (1e-5 if sinks else 1e-9))).max() < 4
    assert (found.numerical_error <= 1e-4 * np.sqrt(np.outer(np.diag(found.gram), np.diag(found.gram)))).all()


def test_known_tokens__beside_no_other_or_one_that_is_negligible():
    covariance, known = np.array([[2.0, 0.5], [0.5, 1.0]]), np.random.default_rng(0).uniform(-2, 14, (2, 3))
    alone = logit_moments(covariance, 0, known=known).gram
    weights = np.exp(known) / np.exp(known).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(alone, weights @ weights.T)
    assert np.abs(logit_moments(1e-6 * covariance, 1, known=known - 40).gram - 1.0).max() < 1e-5


def test_known_values():
    covariance = np.array([[1.0, 0.6, 1.0, 0.0], [0.6, 2.0, 0.6, 0.0], [1.0, 0.6, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = logit_moments(covariance, 25)
    gram, error = found.gram, found.numerical_error + 1e-12
    assert abs(gram[0, 2] - gram[0, 0]) <= error[0, 2] + error[0, 0]  # one head twice
    assert (np.abs(gram[3] - 1 / 25) <= error[3]).all()  # uniform attention
    alone = logit_moments(covariance, 1)
    assert (np.abs(alone.gram - 1) <= alone.numerical_error).all()
    np.testing.assert_allclose(np.diag(found.correlation), 1.0, rtol=1e-12)
    # Independent heads have 1/n, whatever n.
    np.testing.assert_allclose(logit_moments(np.diag([3.0, 0.5]), 7).gram[0, 1], 1 / 7, rtol=1e-6)


@pytest.mark.parametrize("correlation", [0.98, 0.9949, 0.995, 0.99999, -0.9951])
def test_heads_that_are_nearly_aligned__have_moments_within_their_error(correlation):
    """The second logit is read along what the first leaves, or by its own density: both near the change of method."""
    found = logit_moments([[2.0, 2 * correlation], [2 * correlation, 2.0]], 30)
    mean, error = drawn_gram(np.array([[2.0, 2 * correlation], [2 * correlation, 2.0]]), 30, 40_000,
                             np.random.default_rng(3))  # fmt: skip
    assert not found.reason and abs(found.gram[0, 1] - mean[0, 1]) < 4 * error[0, 1]


def test_narrow_heads__are_blank_with_the_reason():
    found = logit_moments(np.diag([10_000.0, 1.0]), 20)
    assert "100" in found.reason and "narrow" in found.reason
    assert np.isnan(found.gram[0]).all() and np.isfinite(found.gram[1, 1])
    # As the documentation says: the distance of nodes is rounded, and so is the limit.
    assert [logit_moments([[float(slope**2)]], 20).reason == "" for slope in (78, 79)] == [True, False]


@pytest.mark.parametrize(
    ("covariance", "n_keys", "known", "said"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], 5, None, "eigenvalue"),
        ([[1.0]], 0, None, "n_keys = 0"),
        ([[1.0]], 2.5, None, "n_keys = 2.5"),
        ([["a"]], 2, None, "dtype"),
        ([[1.0]], 2, [1.0], "known has shape"),
        ([[1.0]], 2, [[np.inf]], "finite"),
        ([[1.0]], 2, [[1.0], [2.0]], "H = 1"),
    ],
)
def test_mistakes__are_refused(covariance, n_keys, known, said):
    with pytest.raises(ValueError, match=said):
        logit_moments(covariance, n_keys, known=known)
