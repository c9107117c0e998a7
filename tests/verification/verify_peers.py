"""Verdict of ``make verify``: other libraries, where installed, at the bandwidths to which a page converts theirs."""

import shutil
import subprocess

import numpy as np
import pytest
from pages import bandwidth_of

from simstudy import nw_ensemble

RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(0.0, 10.0, 80))
Y = np.sin(X) + RNG.normal(0.0, 0.3, 80)
QUERIES, B = np.linspace(1.0, 9.0, 17), 0.8
COLUMN, ASKED = X[:, None], QUERIES[:, None]
SMOOTHERS = {
    "statsmodels": ("statsmodels.nonparametric.kernel_regression",
                    lambda m: m.KernelReg(Y, COLUMN, "c", reg_type="lc", bw=[B]).fit(ASKED)[0]),
    "scikit-fda": ("skfda.misc.hat_matrix", lambda m: m.NadarayaWatsonHatMatrix(bandwidth=B)(
        delta_x=np.abs(ASKED - X), X_train=COLUMN, X=ASKED, y_train=Y)),
    "pyGRNN": ("pyGRNN", lambda m: m.GRNN(sigma=B, calibration="None").fit(COLUMN, Y).predict(ASKED)),
    "nprobust": ("nprobust", lambda m: m.lprobust(
        Y, X, eval=QUERIES, p=0, h=B, kernel="gau", bwcheck=None).Estimate[:, 4]),
    "hessband": ("hessband", lambda m: m.nw_predict(X, Y, QUERIES, B)),
    "kernelsmooth": ("kernelsmooth", lambda m: m.KernelRegression(B, diag_cov=True).fit(COLUMN, Y).predict(ASKED)),
}  # fmt: skip
IN_R = {
    "ksmooth": ("stats", 'ksmooth(x, y, "normal", bandwidth = B, x.points = q)$y'),
    "locpoly": ("KernSmooth", "approx(locpoly(x, y, degree = 0, bandwidth = B, gridsize = 20001L), xout = q)$y"),
    "locfit": ("locfit", 'predict(locfit.raw(x, y, kern = "gauss", alpha = c(0, B), deg = 0, ev = q), where = "fitp")'),
    "sm": ("sm", 'sm.regression(x, y, h = B, poly.index = 0, eval.points = q, display = "none")$estimate'),
}


def assert_converted(library, found, bound=1e-14):
    bandwidth = bandwidth_of(library, B, X.std(ddof=1))
    gap = float(np.abs(nw_ensemble(COLUMN, Y, ASKED, np.ones((1, 1)), bandwidth).estimate - found).max())
    print(f"{library}: bandwidth {bandwidth:.6f}, largest difference {gap:.1e}")
    assert gap < bound


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", SMOOTHERS)
def test_smoother__is_an_ensemble_of_one_head(library):
    module, smoother = SMOOTHERS[library]
    assert_converted(library, smoother(pytest.importorskip(module)))


@pytest.mark.parametrize("library", IN_R)
def test_smoother_of_r__is_an_ensemble_of_one_head(library):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    package, call = IN_R[library]
    given = {"x": X, "y": Y, "q": QUERIES, "B": [B]}
    code = "".join(f"{name} <- c({', '.join(map(str, numbers))})\n" for name, numbers in given.items())
    code += f"if (!suppressMessages(require({package}))) quit(status = 9)\ncat(format({call}, digits = 17))"
    done = subprocess.run(["Rscript", "--vanilla", "-"], input=code, capture_output=True, text=True)
    if done.returncode == 9:
        pytest.skip(f"R's {package} is not installed")
    # Weights of ksmooth and locpoly end at four standard deviations, and keys of locpoly are binned.
    assert_converted(
        library, np.array(done.stdout.split(), float), 2e-4 if library in ("ksmooth", "locpoly") else 1e-14
    )


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_attention__is_an_ensemble_of_one_head(library):
    module, (query, key, value) = pytest.importorskip(library), RNG.standard_normal((3, 1, 12, 1, 8)).astype("f")
    if library == "jax":
        found = module.nn.dot_product_attention(query, key, value, scale=B)
    else:
        tensors = [module.tensor(each).transpose(1, 2) for each in (query, key, value)]
        found = module.nn.functional.scaled_dot_product_attention(*tensors, scale=B)
    bandwidth, flat = bandwidth_of("attention", B), [each.reshape(12, 8) for each in (key, value, query)]
    ours = nw_ensemble(*flat, np.eye(8), bandwidth, logits="dot_product").estimate
    assert np.abs(ours - np.asarray(found).reshape(12, 8)).max() < 1e-6
