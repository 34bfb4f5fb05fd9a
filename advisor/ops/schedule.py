"""Beat's scheduler, which continues when the host's clock is set back.

Celery's own compares the time of the last run with the clock: set back by an hour, nothing would be due for an hour.
"""

from datetime import timedelta
from typing import Any

import structlog
from celery.beat import PersistentScheduler

log = structlog.get_logger("assay.beat")
SLACK = timedelta(seconds=1)


class Scheduler(PersistentScheduler):
    def tick(self, *given: Any, **named: Any) -> Any:
        now = self.app.now()
        ahead = [each for each in self.schedule.values() if each.last_run_at and each.last_run_at > now + SLACK]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            log.warning("the clock was set back", entries=len(ahead))
            self._heap = None  # filled again, in the order of the new times
        return super().tick(*given, **named)
