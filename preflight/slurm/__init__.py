"""SLURM: the resources that a request gets on a cluster, the import of clusters, the check before sbatch.

A SLURM job has three forms here, in this order:

    Request         the options as written, with unknown values and their places (preflight.vocabulary.reading)
    SlurmJob  what sbatch makes of them and sends: known counts alone, in SLURM's names and units (controller.job)
    Allocation      what the job gets on each node, in the names and bytes of a training job (allocation)

`controller` works on the second alone: it is a port of SLURM's code. Nothing else reads it.
"""
