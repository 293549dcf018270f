"""W&B sweeps: the search space and the command of their agents."""
