"""Python programs: their training, launches and configurations."""
