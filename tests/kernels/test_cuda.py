"""The CUDA kernels on Numba's simulator, and on a GPU where there is one; the executor and its refusals.

With SIMSTUDY_REQUIRE_CUDA=1 a machine without a usable GPU fails instead of skipping.
"""

import importlib.util
import os
import re
from types import SimpleNamespace

import pytest
from builders import rare, write_design
from commands import ROOT, python

from simstudy.kernels import devices
from simstudy.kernels.devices import cuda_problem, cuda_simulated

SIMULATED = {"NUMBA_ENABLE_CUDASIM": "1"}


def run(*arguments, **environment):
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    return python(*arguments, cwd=ROOT, env=settings | environment, timeout=None)


def require_checks(chosen, **environment):
    result = run("-mpytest", "-n0", "-pno:cacheprovider", "-m", chosen, "tests/kernels/cuda_checks.py", **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed(, \d+ deselected)? in", result.stdout, re.MULTILINE), result.stdout


@pytest.mark.parametrize("chosen", ["not rare", rare("rare")])
def test_kernels__agree_with_the_cpu_on_the_simulator(chosen):
    require_checks(chosen, **SIMULATED)


@pytest.mark.rare
def test_benchmark__prints_the_parts_of_a_batch_to_its_end():
    pytest.importorskip("torch")
    result = run("tests/benchmarks/gpu.py", "tiny", **SIMULATED)
    parts = "plain: .*project_keys: .*with control: .*compute: .*_expand: .*copies .*moments of 2 heads, float64: "
    assert result.returncode == 0 and re.search(parts, result.stdout, re.DOTALL), result.stderr


def test_kernels__run_on_the_device_and_agree_with_the_cpu():
    problem = "this process is on the simulator" if cuda_simulated() else cuda_problem()
    if problem:
        assert os.environ.get("SIMSTUDY_REQUIRE_CUDA") != "1", problem
        pytest.skip(problem)
    require_checks("rare or not rare")


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="the extra cuda is not installed")
def test_kernels__compile_for_a_gpu_that_is_not_there_with_few_instructions_for_a_weight():
    result = run("tests/kernels/cuda_compile.py")
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"^\| (.*) \| (float\d\d) \| \d+ \| (\d+) \| (.*) \|$", result.stdout, re.MULTILINE)
    counted = {name: float(count) for name, real, _, count in rows if real == "float32" and count != "–"}
    assert len(rows) == 36 and all(int(local) < 256 for _, _, local, _ in rows)
    assert counted["moments, 8 heads of 4, 64 queries"] <= 24 and counted["estimates, 8 heads of 4, 64 queries"] <= 18


@pytest.mark.parametrize("problem, said", [
    ("no driver", "executor = 'cuda': no driver"), ("", "workers = 2: more than the GPUs that can be used (1)"),
])  # fmt: skip
def test_executor__without_a_gpu_or_with_more_workers_is_refused(problem, said, tmp_path, in_process, monkeypatch):
    monkeypatch.setattr(devices, "cuda_compiler", lambda: SimpleNamespace(gpus=["the only one"]))
    for left, name in (("", "0"), ("3,5", "3")):  # GPUs in view are those that the environment leaves
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", left)
        assert devices.visible_gpus() == [name]
    monkeypatch.setattr(devices, "cuda_problem", lambda: problem)
    given = ("run", write_design(tmp_path), "--output", tmp_path / "out", "--executor", "cuda", "--workers", 2)
    result = in_process(*given)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and said in result.stderr, result.stderr
    assert not (tmp_path / "out").exists()
