"""What is measured of random instances: each file measures one system, and is found by being here.

A design states an instance by the setting ``instance`` of the table ``[system]``; sizes come from the tables that every
cell has (n_keys tokens of n_features, n_heads of head_dim).
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
