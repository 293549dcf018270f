"""Dialect of Jupyter notebooks."""
