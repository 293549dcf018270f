"""The rules of this package, one a file."""
