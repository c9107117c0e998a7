"""How a budget of dimensions is split into heads, and how the best split grows."""
