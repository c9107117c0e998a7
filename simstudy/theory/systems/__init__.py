"""Formulas for the numbers of random instances: each file holds those of one system, and is found by being here."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
