"""Deployments and training runs as they are: what `estimate` takes."""
