"""Dry runs of public training scripts, and their agreement with preflight's own laws."""
