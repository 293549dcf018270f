"""Dialects of files that run containers: Compose and Kubernetes."""
