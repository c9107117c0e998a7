"""Data of replicates: random numbers by address, keys, noise, m(X), heads and their geometry."""
