"""REST views: for people and programs, and for agents."""

from probes.api import agent_views, views
