"""Star graphs: one centre with d spokes of equal length (the centre among them), nodes named by random tokens."""

import numpy as np


def star_graph(d, length, vocab_size, seed=0):
    """Paths from the centre outwards, an array of d rows and `length` columns."""
    needed = d * (length - 1) + 1
    if vocab_size < needed:
        raise ValueError(f"{d} spokes of length {length} need {needed} tokens, the vocabulary has {vocab_size}")
    names = np.random.default_rng(seed).choice(vocab_size, size=needed, replace=False)
    return np.concatenate([np.full((d, 1), names[0]), names[1:].reshape(d, length - 1)], axis=1)


def split(paths, holdout_percentage):
    """Training and held-out paths."""
    held_out = int(len(paths) * holdout_percentage)
    return paths[held_out:], paths[:held_out]
