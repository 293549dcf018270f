"""SLURM job scripts: the request and the commands that they launch."""
