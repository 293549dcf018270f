"""Optuna studies: what a trial suggests, branch by branch."""
