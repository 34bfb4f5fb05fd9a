"""The track record: decisions made from held-out predictions, and checked by measured deployments."""
