"""Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.

`run` runs a study from its design file; `open_results` loads the results of one and `to_grid` lays them out by
factor; `nw_ensemble`, `principal_angles` and `head_diversity` evaluate one ensemble on the caller's own arrays.
"""

from simstudy.ensemble import head_diversity, nw_ensemble, principal_angles
from simstudy.results import open_results, to_grid
from simstudy.study import run

__all__ = ["head_diversity", "nw_ensemble", "open_results", "principal_angles", "run", "to_grid"]
