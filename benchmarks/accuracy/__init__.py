"""Estimates beside measured runs and other tools: `python -m benchmarks.accuracy` writes docs/results/accuracy.md."""
