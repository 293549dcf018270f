"""Reads a project's own modules: their forward pass and the step of the training loop are walked as syntax trees.

Nothing of the project is imported, compiled or executed. An evaluator of our own follows the text over tensors on meta.
It calls what the tables of `allowed` list and nothing else. The first thing that it does not know ends the reading
with its place (`stopped.Stopped`): then there is no law, and nothing is guessed.
"""
