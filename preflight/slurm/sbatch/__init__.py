"""`preflight sbatch`: checks a job when it is submitted, and calls the real sbatch with unchanged arguments.

This process imports very little before it becomes sbatch. The check runs in a child process with a time limit, so that
the job can be submitted even if the check fails.
"""
