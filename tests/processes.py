"""Processes that tests start."""

HANGS = 600
"""Seconds after which a process is taken to hang: a hundred times what any takes on a busy machine, so that the test
ends and does not judge how fast the machine is."""
