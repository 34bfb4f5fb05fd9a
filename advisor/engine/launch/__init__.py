"""Launch commands, manifests and load tests for a chosen deployment."""

from advisor.engine.launch.command import Launch, context_limit, launch
from advisor.engine.launch.draft_options import checkpoint_of
from advisor.engine.launch.served_checkpoint import served_checkpoint

__all__ = [
    "Launch",
    "checkpoint_of",
    "launch",
    "served_checkpoint",
    "context_limit",
]
