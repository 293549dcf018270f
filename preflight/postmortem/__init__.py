"""Reads the logs of a job that died: evidence, the diagnosis, and the estimate for the same job."""
