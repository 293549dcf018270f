"""`preflight sbatch`: a job is checked as it is submitted, and handed over to the real sbatch untouched.

What runs before the hand-over imports next to nothing; the check itself runs in a child process with a time limit, so
that whatever becomes of it, the job can still be submitted.
"""
