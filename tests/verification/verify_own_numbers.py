"""Part of ``make verify``: tables of a user's own numbers are judged as studies are, and not more often wrongly."""

import pytest
from own_numbers import CLAIMS, LAWS, looks, rejudged, same, wrong_at_any_look

import simstudy
from simstudy.design.claims import LEVEL
from simstudy.design.shipped import known_designs, shipped_folder

STUDIES = 1000


@pytest.mark.parametrize("name", [path.stem for path in known_designs()])
def test_shipped_studies__get_their_verdicts_from_their_block_contributions(name, tmp_path, monkeypatch):
    """With few replicates: the verdicts need not be those declared, but both ways must give the same."""
    monkeypatch.chdir(shipped_folder())  # tables have no folder, to which paths of heads are relative
    study = simstudy.Study.of(name)
    few = {"min_replicates": 64, "max_replicates": 64, "stop": "precision"}
    study["profiles"]["quick"]["grids"] = {
        grid: study["profiles"]["quick"].get("grids", {}).get(grid, {}) | {"precision": few} for grid in study["grids"]
    }
    design = simstudy.check(study)["quick"]
    simstudy.run(design, output=tmp_path)
    pairs = list(rejudged(design, tmp_path))
    print(f"\n{name}: {sum(own.sizes['claim'] for own, _ in pairs)} of {len(design.claims)} claims")
    assert all(same(*pair) for pair in pairs)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_looking_again_after_more_units__keeps_the_level(law, claim):
    rate = wrong_at_any_look(law, claim, STUDIES, looks(64, 4096))
    print(f"\n{law}, {claim}: {100 * rate:.1f} % of {STUDIES} studies wrong at any of {len(looks(64, 4096))} looks")
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / STUDIES) ** 0.5
