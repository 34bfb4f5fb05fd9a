"""Measured training runs: their rows, predictions, scores and intervals."""
