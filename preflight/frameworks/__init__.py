"""Tools' own settings: what a key of theirs says of a Job, by default and in which version."""
