"""Commands, manifests and load tests for a chosen deployment."""

from advisor.engine.launch.command import Launch, launch, longest
from advisor.engine.launch.draft_options import checkpoint_of

__all__ = [
    "Launch",
    "checkpoint_of",
    "launch",
    "longest",
]
