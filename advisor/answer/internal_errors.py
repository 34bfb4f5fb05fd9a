"""The one place where an internal error does not end the answer: the accelerator or section it struck is left out.

The search runs again without the accelerator, so that the answer is whole. Every such error is logged with its
traceback, counted in `candidates.internal_rejections`, and raised where settings.INTERNAL_ERRORS_END_ANSWERS is set,
as in tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from traceback import format_exc
from typing import TypeVar

import structlog
from django.conf import settings

from advisor.engine.search import Catalog
from advisor.engine.terms import UNEXPECTED, CandidateError
from advisor.result import Answer, InternalRejection, Rejection

log = structlog.get_logger("assay.answer")
MOST = 10  # accelerators that one answer may lose
REASON = "internal_error"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """What internal errors cost one answer: accelerators, and sections; each with the reason."""

    accelerators: Mapping[str, str] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    def without(self, catalog: Catalog) -> Catalog:
        """The catalog without the lost accelerators and their offers."""
        if not self.accelerators:
            return catalog
        return replace(
            catalog,
            accelerators=tuple(a for a in catalog.accelerators if a.slug not in self.accelerators),
            offers=tuple(o for o in catalog.offers if o.accelerator not in self.accelerators),
        )

    def section(self, name: str, make: Callable[[], T], otherwise: T) -> T:
        """One section of the answer, or `otherwise` after an unexpected error."""
        try:
            return make()
        except UNEXPECTED as error:
            if settings.INTERNAL_ERRORS_END_ANSWERS:
                raise
            log.error("section left out after an internal error", section=name, traceback=format_exc())
            self.sections[name] = f"left out after an internal error ({type(error).__name__}); see the log for details"
            return otherwise

    def told(self, answer: Answer) -> Answer:
        """The answer with what it lost."""
        if not self.accelerators and not self.sections:
            return answer
        lost = [InternalRejection(what=n, detail=r) for n, r in (*self.accelerators.items(), *self.sections.items())]
        return answer.changed(
            candidates=answer.candidates.changed(internal_rejections=lost),
            rejected=[*answer.rejected, *(rejection(slug, said) for slug, said in self.accelerators.items())],
        )


def rejection(accelerator: str, said: str) -> Rejection:
    return Rejection(
        accelerator=accelerator, reason=REASON, detail=said, limit=None, reached=None, smallest_change="", dead_end=said
    )


def answered(attempt: Callable[[Lost], T]) -> T:
    """The first attempt that no accelerator ends; each one that does is left out of the next."""
    lost: dict[str, str] = {}
    while True:
        try:
            return attempt(Lost(accelerators=dict(lost)))
        except CandidateError as error:
            cause = error.__cause__
            slug = error.accelerator
            if settings.INTERNAL_ERRORS_END_ANSWERS or slug in lost or len(lost) >= MOST:
                raise (cause or error) from None
            log.error("accelerator left out after an internal error", accelerator=slug, traceback=format_exc())
            lost[slug] = f"not evaluated because of an internal error ({type(cause).__name__}); see the log for details"
