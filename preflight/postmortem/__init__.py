"""What is left of a job that died, read: evidence from logs, the conclusion, and the estimate beside it."""
