"""Imports a SLURM cluster from slurm.conf or from the output of SLURM's commands."""
