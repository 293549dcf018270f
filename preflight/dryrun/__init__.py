"""Runs a command of the user's, when told to, with CUDA faked, and works its memory out of what it allocated."""
