"""Studies: what the files of one launch say together."""
