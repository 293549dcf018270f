"""Estimates beside measured runs and beside other tools: `python -m benchmarks.accuracy` writes docs/accuracy.md."""
