"""What the process of `commands.FORKS` does before it forks, so that its forks need not: it digests our sources."""

from simstudy.execution.provenance import PACKAGE, code_of

for source in PACKAGE.rglob("*.py"):
    code_of(source)
