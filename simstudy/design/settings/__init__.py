"""Settings that a design file may state, as immutable validated records, and the cell that they make."""
