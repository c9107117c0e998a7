"""What a study states, and everything that can be wrong with it."""
