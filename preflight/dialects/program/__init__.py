"""Python programs: what they train, launch and configure."""
