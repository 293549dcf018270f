"""A cluster's description out of slurm.conf or of SLURM's own commands."""
