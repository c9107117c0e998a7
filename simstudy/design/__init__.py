"""Designs: records of a study, its cells, and messages on everything that can be wrong with them."""
