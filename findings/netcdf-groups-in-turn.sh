#!/usr/bin/env bash
# Guess: a file of many groups takes as long whether each variable is written once it is defined, or all are defined first.
# Found (netCDF4 1.7.5.1.post1, netCDF 4.10.1, HDF5 2.2.0): eight times as many groups take more than 20 times as long in
# turn, and 6 to 9 times where all variables are defined before any is written.  Both files hold the same numbers.
# Why it matters: results with a group for each grid or cell are written so, one after the other; thousands seem to hang.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check netCDF4==1.7.5.1.post1
"$work/venv/bin/python" - "$work" <<'PY'
import sys
import time

import netCDF4
import numpy as np


def write(n_groups, first):
    """Processor seconds of a file whose variables are all defined first, or each is written once it is defined."""
    began, made = time.process_time(), []
    with netCDF4.Dataset(f"{sys.argv[1]}/{first}.nc", "w") as file:
        for number in range(8 * n_groups):
            group = file.createGroup(f"group{number // 8}")
            group.createDimension(f"dimension{number % 8}", 4)
            made.append(group.createVariable(f"variable{number % 8}", "f8", (f"dimension{number % 8}",)))
            if not first:
                made[-1][:] = np.arange(4.0) + number
        for number, variable in enumerate(made) if first else ():
            variable[:] = np.arange(4.0) + number
    return time.process_time() - began


growth = {}
for first in (False, True):
    few, many = min(write(60, first) for _ in range(2)), write(480, first)
    growth[first] = many / few
    how = "all defined first" if first else "defined and written in turn"
    print(f"netCDF4 {netCDF4.__version__}, {how}: 60 groups {few:.2f} s, 480 groups {many:.2f} s")
with netCDF4.Dataset(f"{sys.argv[1]}/False.nc") as one, netCDF4.Dataset(f"{sys.argv[1]}/True.nc") as other:
    for name, group in one.groups.items():
        assert all((group[each][:] == other[name][each][:]).all() for each in group.variables)
assert growth[False] > 2 * growth[True], growth
PY
