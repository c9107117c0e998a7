"""Members of an ensemble that are no heads with given projections.

Each is found by being in a file here, and registered with `members.evaluated` by the type of its record in
`design.settings.choices`, which is all that adding one takes.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
