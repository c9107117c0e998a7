"""What tests of reports share: made-up results of a small design, which no test may change."""

import pytest
from builders_results import build_design, build_results


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"))


@pytest.fixture(scope="module")
def results(design):
    return build_results(design)
