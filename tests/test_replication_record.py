"""The record of published numbers: what it quotes, and what it does not."""

import pandas as pd
from test_documents import findings, verdicts

FOUND = [
    ("pilot", "six-5-2-low", "supported", "0.311 ± 0.019"),
    ("day 1", "six-5-2-low", "contradicted", "0.444 ± 0.019"),
    ("pilot", "six-5-2-high", "supported", "0.755 ± 0.005"),
    ("day 1", "theorem-coded-01", "supported", "0.01 ± 0.001"),
    ("day 2", "theorem-coded-01", "contradicted", "-0.02 ± 0.001"),
    ("day 2", "errors-are-uncorrelated", "supported", "0.000 ± 0.001"),
    ("day 2", "renamed-since", "supported", "1 ± 0"),
]


def test_record__quotes_confirmations_alone_and_counts_what_divides_them_as_open(monkeypatch):
    columns = {"study": findings.RECORD, "claimed": "≥ 0", "confidence": "a to b"}
    table = pd.DataFrame(
        [dict(zip(("run", "claim", "verdict", "estimate"), row, strict=True)) | columns for row in FOUND]
    )
    monkeypatch.setattr(verdicts, "read", lambda: table)
    rows = "\n".join(findings.replication())
    for quoted in ("0.314 ± 0.019 | 0.444 ± 0.019 | a to b | contradicted |", "≥ 0 | -0.02 ± 0.001 | a to b | divided"):
        assert quoted in rows
    for kept_out in ("0.311", "0.755", "renamed-since", "0.01 ±"):
        assert kept_out not in rows
    assert rows.count("`") == 6
    first, second, third = findings.replicated()
    assert "Of 1 printed numbers, 0 are reproduced, 1 are not, and 0 stay open" in first
    assert "Of 1 sentences" in second and "0 hold, 0 do not, and 1 stay open" in second
    assert "Of 1 claims" in third and "1 hold" in third
    monkeypatch.setattr(verdicts, "read", lambda: table[table.run == "pilot"])
    assert list(findings.replicated()) == ["Nothing is confirmed yet, and pilots are not quoted."]
    assert not list(findings.replication())
