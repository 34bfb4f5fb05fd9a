"""Accelerators, hosts and offers."""
