"""Makes laws from traces: chooses the sizes to trace at, and fits formulas to the tapes."""
