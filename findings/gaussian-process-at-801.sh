#!/usr/bin/env bash
# Guess: regression by an `ExactGP` of GPyTorch is exact at any number of observations, or says that it is not.
# Found (gpytorch 1.15.2, torch 2.13.0, numpy 2.4.6): with 800 observations it is, to nine digits.  From 801 on equations are solved by
# conjugate gradients to a tolerance of 0.01, without a word.  Posterior standard deviations are then 1.7 to 3.9 times as large,
# means are off by twice the right ones, and the likelihood is another number at each call.  float64 does not help;
# `max_cholesky_size` does.  Documented: that setting, with its 800; not what the others cost.
# Why it matters: in a study of sample sizes errors and intervals jump between 800 and 801, and no data did it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check gpytorch==1.15.2 torch==2.13.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import math
import warnings

import gpytorch
import torch

NOISE, SCALE = 0.05, 0.1
torch.set_default_dtype(torch.float64)


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = gpytorch.kernels.RBFKernel()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def kernel(x, y):
    return torch.exp(-0.5 * ((x[:, None] - y) / SCALE) ** 2)


def compared(size):
    """Errors of means in right standard deviations, ratios of standard deviations, three likelihoods and the right one."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(size, generator=generator)
    y = torch.sin(20 * x) + NOISE * torch.randn(size, generator=generator)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    likelihood.noise, model.kernel.lengthscale = NOISE**2, SCALE
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    found = [round(float(criterion(model(x), y).detach()) * size, 2) for _ in range(3)]
    model.eval()
    grid = torch.linspace(0, 1, 50)
    with torch.no_grad():
        posterior = model(grid)
        mean, sd = posterior.mean, posterior.stddev
    root = torch.linalg.cholesky(kernel(x, x) + NOISE**2 * torch.eye(size))
    solved = torch.cholesky_solve(torch.column_stack([y, kernel(x, grid)]), root)
    right = (1 - (kernel(grid, x) * solved[:, 1:].T).sum(1)).sqrt()
    exact = -0.5 * float(y @ solved[:, 0]) - float(root.diagonal().log().sum()) - size / 2 * math.log(2 * math.pi)
    return (mean - kernel(grid, x) @ solved[:, 0]).abs().div(right).max().item(), sd / right, found, round(exact, 2)


torch.manual_seed(0)
warnings.simplefilter("error")
for size, largest in ((800, 800), (801, 800), (1500, 800), (1500, 2000)):
    with gpytorch.settings.max_cholesky_size(largest):
        error, ratio, found, exact = compared(size)
    print(f"{size} observations, max_cholesky_size {largest}: means off by {error:.4f} standard deviations, these are "
          f"{ratio.min():.3f} to {ratio.max():.3f} times the right ones; log likelihoods {found}, exact {exact}")
    if size > largest:
        assert error > 1 and ratio.min() > 1.2 and ratio.max() > 2.5 and len(set(found)) == 3
    else:
        assert error < 1e-4 and abs(ratio - 1).max() < 1e-4 and set(found) == {exact}
PY
