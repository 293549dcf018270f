"""Settings of training tools: which of their keys is which Job field, with defaults by version."""
