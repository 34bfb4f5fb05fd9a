"""Recorded traffic: which columns a trace has, its requests, and the files that a workload refers to."""
