"""Verdicts on a user's own numbers: a table of units and conditions, and claims on its means."""
