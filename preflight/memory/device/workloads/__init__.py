"""Kinds of model: how each is recognised, sized and traced."""
