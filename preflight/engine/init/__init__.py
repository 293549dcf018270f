"""`preflight init`: settings, the pre-commit hook and the CI job, planned as texts before they are written."""
