"""What a cell is made of: the settings that a design file may state, as immutable validated records."""
