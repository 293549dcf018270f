"""What the calls of a program mean: loops, loaders, datasets, models, precision."""
