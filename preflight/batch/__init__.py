"""Verdicts on rows of Jobs as a service."""
