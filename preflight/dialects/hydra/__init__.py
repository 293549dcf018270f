"""Hydra: applications, their configuration trees, overrides and sweeps."""
