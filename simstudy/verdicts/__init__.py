"""Comparison of empirical measures with theory, and tests of the claims."""
