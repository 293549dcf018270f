"""Search spaces: how many combinations fit, the worst one, and the largest part of the space that fits."""
