"""Mistakes that a user can mend, and how a message shows what a file says."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that a user can mend: shown as its message alone, each argument a line of it; exit code 2."""

    def __str__(self) -> str:
        return "\n".join(self.args)
