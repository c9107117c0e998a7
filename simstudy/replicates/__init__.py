"""Batches of replicates, measures with Monte Carlo errors, the stopping rule, and replay of one replicate."""
