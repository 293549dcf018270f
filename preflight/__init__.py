"""preflight: a static pre-flight checker for machine-learning jobs."""

__version__ = "0.1.0"
