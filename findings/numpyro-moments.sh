#!/usr/bin/env bash
# Guess: covariances, means, variances and quantiles of numpyro's distributions are those of their draws.
# Found (numpyro 0.22.0, jax 0.10.2, numpy 2.4.6): not all.  `covariance_matrix` of `MultivariateStudentT` is its squared scale: with 5
# degrees of freedom 1.00 for 1.67, with 2.5 a fifth of it, with 1.5 finite for infinite, while `variance` of the same object is right.
# `mean` of `InverseWishartCholesky` is the root of the mean matrix, with 5 degrees of freedom in two dimensions 0.71 on the diagonal for
# 0.63 and 0.53, and its `variance` is NaN.  `icdf` of `DiscreteUniform(2, 5)` is 1.2 at 0.05 and 4.2 at 0.8, which are no outcomes:
# draws by it lie between 1 and 5 with mean 3.0 for 3.5.  The multivariate normal, `InverseWishart` and `cdf` are right.  There is no
# warning.
# Documented: none of these; comments in the code say that the first is no covariance and the second approximate.  No report was found.
# Why it matters: posteriors are compared by these numbers, and priors of nested samplers and of quasi-random points are drawn by `icdf`.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpyro==0.22.0 jax==0.10.2 scipy==1.17.1 numpy==2.4.6
export JAX_PLATFORMS=cpu JAX_ENABLE_X64=1
"$work/venv/bin/python" - <<'PY'
import warnings

import jax
import numpy as np
import numpyro.distributions as dist

DRAWS = 400_000
warnings.simplefilter("error")
key = jax.random.key(1)
scale = np.array([[1.0, 0.0], [0.5, 1.0]])
for freedom in (30.0, 5.0, 2.5, 1.5):
    student = dist.MultivariateStudentT(freedom, np.zeros(2), scale)
    drawn = np.asarray(student.sample(key, (DRAWS,)))
    covariance, variance = np.asarray(student.covariance_matrix), np.asarray(student.variance)
    print(f"Student, {freedom} degrees of freedom: covariance {covariance.round(3).tolist()}, variances {variance.round(3)}, "
          f"of draws {np.cov(drawn.T).round(2).tolist()}")
    assert np.allclose(covariance, scale @ scale.T)
    if freedom > 4:
        assert np.allclose(drawn.var(axis=0), variance, rtol=0.03)
    if freedom > 2:
        assert np.allclose(variance / np.diag(covariance), freedom / (freedom - 2))
    else:
        assert np.isinf(variance).all()
normal = dist.MultivariateNormal(np.zeros(2), scale_tril=scale)
assert np.allclose(np.cov(np.asarray(normal.sample(key, (DRAWS,))).T), normal.covariance_matrix, atol=0.02)
for freedom in (5.0, 8.0, 20.0):
    root = dist.InverseWishartCholesky(freedom, scale_tril=np.eye(2))
    drawn = np.asarray(root.sample(key, (DRAWS,)))
    mean, variance = np.asarray(root.mean), np.asarray(root.variance)
    product = dist.InverseWishart(freedom, scale_tril=np.eye(2))
    print(f"Cholesky factor, {freedom} degrees of freedom: mean {np.diag(mean).round(3)}, of draws {np.diag(drawn.mean(axis=0)).round(3)}; "
          f"variance {np.diag(variance)}, of draws {np.diag(drawn.var(axis=0)).round(3)}")
    assert np.isnan(variance).all()
    ratio = np.diag(mean) / np.diag(drawn.mean(axis=0))
    assert (ratio > 1.01).all()
    if freedom == 5:
        assert ratio[1] > 1.3
    else:
        assert np.allclose((drawn @ drawn.mT).mean(axis=0), product.mean, atol=0.02)
uniform = dist.DiscreteUniform(2, 5)
levels = np.array([0.05, 0.2, 0.25, 0.3, 0.5, 0.8, 0.95])
outcomes = np.arange(2, 6)
right = outcomes[np.searchsorted(np.asarray(uniform.cdf(outcomes)), levels)]
found = np.asarray(uniform.icdf(levels))
drawn = np.asarray(uniform.icdf(jax.random.uniform(key, (DRAWS,))))
print(f"DiscreteUniform(2, 5) at {levels}: {found.round(2)}, by cdf {right}; draws by icdf from {drawn.min():.2f} to {drawn.max():.2f}, "
      f"mean {drawn.mean():.2f}, of the distribution {float(uniform.mean)}")
assert found[0] < 2 and not np.isin(found, outcomes).all()
assert drawn.min() < 1.1 and abs(drawn.mean() - 3) < 0.01 and float(uniform.mean) == 3.5
assert abs(np.asarray(uniform.sample(key, (DRAWS,))).mean() - 3.5) < 0.01
PY
