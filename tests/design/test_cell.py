"""Cells: what they are named by, and what they have in common."""

from builders import minimal_cell

from simstudy.design.feasibility import features_needed, impossibilities
from simstudy.design.load import load_design


def test_features_needed__by_arrangement():
    def needed(**settings):
        return features_needed(minimal_cell(n_heads=3, head_dim=2, **settings).heads)

    assert needed(arrangement="aligned") == 2
    assert needed(arrangement="orthogonal") == 6
    assert needed(arrangement="rotated", angle=0) == 2
    assert needed(arrangement="rotated", angle=1) == 6
    assert needed(arrangement="principal_angles", principal_angles=[0, 5]) == 4
    assert impossibilities(minimal_cell(arrangement="haar", n_heads=30)) == []


def test_identity__follows_numbers_not_labels():
    cell = minimal_cell()
    assert cell.identity("a") != cell.identity("b")
    assert cell.identity("a") == minimal_cell().identity("a")
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"seed": 8}, {"batch_size": 64}, {"noise_sd": 2.0}):
        assert minimal_cell(**change).identity("a") != cell.identity("a")


def test_data_id__is_shared_by_cells_that_differ_in_the_estimator_only():
    cell = minimal_cell()
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"noise_sd": 2.0}, {"n_heads": 3}, {"regression": "linear"}):
        assert minimal_cell(**change).data_id == cell.data_id
    for change in ({"seed": 8}, {"key_distribution": "sphere"}):
        assert minimal_cell(**change).data_id != cell.data_id


def test_data_id__is_what_it_was_whatever_designs_call_the_kind_of_keys():
    """Drawn bits rest on it: these are the digests of two cells of shipped studies."""
    ids = {each.cell.data_id for name in ("principal-angles", "universality") for each in load_design(name).cells}
    assert {"e4a18f3a863f4d7eab083d1de852c8c3", "66824d5583e20a06eb6cba3e262c7c6e"} <= ids
    assert "59f306e2cabce839b7c4f461c192f430" in ids


def test_changed_cell__has_coordinates_of_its_own():
    cell = minimal_cell(seed=7)
    assert cell.coordinates["seed"] == 7 and cell.coordinates is cell.coordinates
    changed = cell.model_copy(update={"simulation": cell.simulation.model_copy(update={"seed": 8})})
    assert changed.coordinates["seed"] == 8 and cell.coordinates["seed"] == 7
