"""Search spaces: the grid, counting, the safe sub-space, monotone bounds, constraints."""
