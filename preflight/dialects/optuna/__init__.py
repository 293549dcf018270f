"""Optuna studies: the parameters that a trial suggests, for each branch."""
