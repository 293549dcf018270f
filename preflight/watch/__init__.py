"""Runs a command of the user's as it is, and records its memory: of GPUs by phase, of the host by second."""
