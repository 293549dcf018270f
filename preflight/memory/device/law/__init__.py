"""Memory laws: tapes, their formulas, the catalogue of models, the files that ship."""
