"""SLURM: its controller's arithmetic, the import of clusters, the check before sbatch."""
