"""`preflight fit`: solves for the value of a Job field with which a job fits, and writes it with a proof."""
