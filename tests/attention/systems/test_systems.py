"""What a batch holds, and results of studies without instances."""

from builders import minimal_cell, write_design

import simstudy
from simstudy.design.load import load_design
from simstudy.design.settings.systems import NAMES
from simstudy.replicates.batch import simulate_batch


def test_batch__holds_the_statistics_of_its_cell_alone():
    cells = {"ensemble": minimal_cell(), "compared": minimal_cell(reference="attention")}
    widths = {name: simulate_batch([cell], 0)[0].statistic_sum.shape[1] for name, cell in cells.items()}
    assert widths == {"ensemble": 7 + 3, "compared": 7 + 4}


def test_results_of_a_study_without_instances__have_no_numbers_of_them(tmp_path):
    results = simstudy.run(load_design(write_design(tmp_path)), output=tmp_path, executor="serial")
    assert not set(NAMES) & set(results)
