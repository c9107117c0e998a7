"""Tables of a report as files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from simstudy.report.tables import csv_of, verdict_frame


def test_csv__holds_no_formulas():
    frame = pd.DataFrame({"text": ["=1+1", "+a", "-b", "@c", "\tx", "\rx", "a=b", ""], "number": -0.35 * np.arange(8)})
    lines = csv_of(frame).replace("\r", "CR").splitlines()
    assert lines[1:] == [
        "'=1+1,-0.0", "'+a,-0.35", "'-b,-0.7", "'@c,-1.0499999999999998", "'\tx,-1.4", "'CRx,-1.75",
        "a=b,-2.0999999999999996", ",-2.4499999999999997",
    ]  # fmt: skip


def test_verdict_frame__without_claims_is_empty():
    assert verdict_frame(xr.Dataset()).empty
