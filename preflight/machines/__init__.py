"""Machines: GPUs, nodes, partitions and clusters."""
