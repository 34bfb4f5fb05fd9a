"""Estimates of one fixed deployment or training step."""
