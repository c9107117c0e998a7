"""Members of an ensemble other than heads with given projections.

A learner is a module here, which is imported below.  It registers a function with `members.evaluated` for the type of
its record in `design.settings.choices`.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
