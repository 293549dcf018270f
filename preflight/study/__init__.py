"""Studies: what the files of one launch mean together."""
