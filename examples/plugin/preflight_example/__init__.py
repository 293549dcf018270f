"""What another package can add to preflight: a rule, a dialect, an optimizer and a GPU."""
