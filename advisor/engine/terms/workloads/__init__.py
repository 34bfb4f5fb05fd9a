"""Workloads: requests, demand over time, kinds and measured cases."""
