"""Variants of a deployment: drafts, separate pools, evicted caches, scale to zero."""
