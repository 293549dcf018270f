"""What slurmctld answers to a request: the checks of sbatch and of the controller, and select/cons_tres, as arithmetic.

The order of the checks and their conditions are those of Slurm 22.05.8 (each function names the one it follows); every
one is compared with a real controller in tests/slurm. The cluster is taken to be idle, as `sbatch --test-only` answers
on one: what is refused there is refused on a busy one too.
"""
