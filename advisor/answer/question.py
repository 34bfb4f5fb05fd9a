"""What every part of an answer reads: the question as asked, the snapshot, and both as engine values."""

from dataclasses import dataclass
from typing import Any

from advisor.engine import search
from advisor.inputs import Snapshot

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(search.Question):
    """A validated workload file with the snapshot that answers it, and the engine's values of both."""

    spec: Json
    snapshot: Snapshot
