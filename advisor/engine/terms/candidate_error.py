"""Marks an unexpected error with the accelerator that was being evaluated.

Nothing is caught to go on here. answer/internal_errors is the one place that leaves such an accelerator out.
"""

from collections.abc import Iterator
from contextlib import contextmanager

# What a mistake in our own code or data raises. A lost lease, a time limit and a database error pass unchanged.
UNEXPECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class CandidateError(Exception):
    """An unexpected error (`__cause__`) while one accelerator was evaluated."""

    def __init__(self, accelerator: str) -> None:
        self.accelerator = accelerator
        super().__init__(accelerator)


@contextmanager
def evaluating(accelerator: str) -> Iterator[None]:
    """Raises CandidateError for an unexpected error in the block."""
    try:
        yield
    except UNEXPECTED as error:
        raise CandidateError(accelerator) from error
