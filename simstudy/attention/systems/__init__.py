"""What is measured of random instances: each file measures one system, and is found by being here.

A design states an instance by the setting ``instance`` of the table ``[system]``; sizes come from the tables that every
cell has (n_keys tokens of n_features, n_heads of head_dim).

How to add a system, in one file of its name for each of these two rooms, and in `theory.instances`:

1. design/settings/systems: a record for each kind of instance: parameters, the settings of other tables that it uses,
   its quantities with unit, meaning and formula, the sizes that are impossible, what people call its parameters;
2. attention/systems: a function of (record, cell, data of some replicates), registered with `members.quantities`, that
   returns or yields the quantities of each replicate, in their order: random numbers by address come from
   ``shared.normals(rows, columns)``, or as matrices from `attention.members`, tokens from ``shared.keys``; a number
   that is not finite counts its replicate as failed;
3. theory/instances.py, where there are formulas: functions of (record, cell), registered with those of that file;
4. tests/attention/systems: a naive loop with a control.

Nothing else names a system: claims, figures and precision then name its quantities as they name ``mse``, grids cross
"instance.PARAMETER", and a change of its files leaves the stored batches of all others.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
