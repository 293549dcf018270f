"""The controller's answer to a request, as arithmetic: the checks of sbatch and slurmctld, and the choice of nodes.

This is a port of Slurm 22.05.8. The order of the checks and their conditions are SLURM's; each module names the C files
that it follows, each function its C function where it follows one. tests/slurm compares all of it with a real
controller. The cluster is taken to be idle: `sbatch --test-only` answers so too, and what is refused on an idle cluster
is refused on a busy one.
"""
