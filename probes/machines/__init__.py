"""Machines that run probes: enrollment, tokens and trust, their devices, and their jobs."""

from probes.machines import agents, devices, jobs
