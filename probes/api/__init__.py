"""REST views: for people and programs, and for agents."""

from probes.api import agent_views, views

__all__ = [
    "agent_views",
    "views",
]
