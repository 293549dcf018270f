"""`preflight sbatch`: checks a job when it is submitted, and calls the real sbatch with unchanged arguments.

What runs before the hand-over imports next to nothing; the check itself runs in a child process with a time limit, so
that whatever becomes of it, the job can still be submitted.
"""
