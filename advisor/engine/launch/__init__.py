"""Launch commands, manifests and load tests for a chosen deployment."""

from advisor.engine.launch.command import Launch, context_limit, launch
from advisor.engine.launch.draft_options import checkpoint_of

__all__ = [
    "Launch",
    "checkpoint_of",
    "launch",
    "context_limit",
]
