"""Readers of a program's calls: loops, loaders, datasets, models, precision."""
