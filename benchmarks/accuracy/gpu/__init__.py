"""Measured on a GPU: a grid of training steps, recorded phase by phase, and preflight's estimates beside them."""
