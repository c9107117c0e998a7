"""Measures beside theory, and tests of the claims: the one place where both meet."""
