"""Members of an ensemble that are no heads with given projections: a file for each kind of learner, of its name.

Each is found by being here, and registered with `members.evaluated` by the type of its record in
`design.settings.ensembles`, which is all that adding one takes; a change of its file leaves the stored batches of all
others.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
