"""Many Jobs: rows of Jobs in, verdicts out."""
