"""Heads of trained transformers: reading them, their attention, and what theory says of it."""
