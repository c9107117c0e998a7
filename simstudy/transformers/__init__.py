"""Attention of trained transformers: capture, correlations of heads, and theoretical predictions of these."""
