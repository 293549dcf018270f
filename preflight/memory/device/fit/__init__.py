"""Laws out of traces: what is traced, and the formulas that follow."""
