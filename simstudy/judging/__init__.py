"""Verdicts on anybody's numbers: a table of units and conditions, claims, and the engine that judges studies."""
