"""Files that run containers: Compose and Kubernetes."""
