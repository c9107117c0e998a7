"""Formulas for the numbers of random instances."""
