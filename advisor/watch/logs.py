"""One format for the log lines of all processes, with the ids of the request and of the job that they belong to.

With ASSAY_LOG_JSON, every line of web, worker, beat and supervisor is a JSON object: also those of gunicorn and Celery,
warnings, and tracebacks of uncaught exceptions. The ids are structlog's context variables: `request_id` of an HTTP
request (`http.follow`), which goes with Celery messages in their headers and is stored with an advice; `task` of a
Celery task; `advice` and `attempt` of a calculation (advise.work).
"""

import logging
import sys
import threading
from typing import Any

import environ
import structlog
from celery import signals

REQUEST_ID = "request_id"
HEADER = "X-Request-ID"
log = structlog.get_logger("assay.process")

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def as_json() -> bool:
    """ASSAY_LOG_JSON; read here because gunicorn logs before Django's settings are loaded."""
    return environ.Env().bool("ASSAY_LOG_JSON", default=False)


def formatter() -> logging.Formatter:
    renderer: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json()
        else [structlog.dev.ConsoleRenderer(colors=False)]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer]
    )


def configure(level: str | None) -> dict[str, Any]:
    """Configures structlog and, for JSON, warnings and uncaught exceptions. Returns Django's LOGGING.

    `level`: of all loggers; None: INFO for Assay's own, WARNING for others.
    """
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    if as_json():
        logging.captureWarnings(True)
        sys.excepthook = log_uncaught
        threading.excepthook = lambda given: log_uncaught(given.exc_type, given.exc_value, given.exc_traceback)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"()": "advisor.watch.logs.formatter"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "root": {"handlers": ["stderr"], "level": level or "WARNING"},
        "loggers": {
            "assay": {"level": level or "INFO"},
            "assay.http": {"level": level or "WARNING"},  # a line for each request
            "django": {"handlers": [], "level": "WARNING"},
            "kombu.connection": {"level": "ERROR"},  # warns that a folder has no host name
        },
    }


def log_uncaught(kind: Any, error: Any, traceback: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    log.critical("uncaught exception", exc_info=(kind, error, traceback))


def current_request_id() -> str:
    """The id of the HTTP request that this code runs for; empty: none."""
    return str(structlog.contextvars.get_contextvars().get(REQUEST_ID, ""))


# --- Celery -----------------------------------------------------------------------------------------------------


@signals.setup_logging.connect
def _keep_settings(**given: Any) -> None:
    """A receiver of this signal stops Celery from adding handlers of its own: lines go where settings.LOGGING says.

    `--loglevel` still sets the level of everything that has none.
    """
    level = logging.getLevelName(str(given.get("loglevel", "")).upper()) if given.get("loglevel") else None
    number = given["loglevel"] if isinstance(given.get("loglevel"), int) else level
    if isinstance(number, int):
        logging.getLogger().setLevel(number)


@signals.celeryd_init.connect
def _say_in_json(**given: Any) -> None:
    """Celery writes to the terminal itself when it stops."""
    if as_json():
        from celery.apps import worker

        worker.safe_say = lambda text, *streams: log.info(text.strip())  # type: ignore[attr-defined]  # not in its stubs


@signals.before_task_publish.connect
def _send_request_id(headers: dict[str, Any] | None = None, **given: Any) -> None:
    if headers is not None and (request_id := current_request_id()):
        headers[REQUEST_ID] = request_id


@signals.task_prerun.connect
def _bind(task_id: str, task: Any, **given: Any) -> None:
    ids = {"task": task.name, "task_id": task_id, REQUEST_ID: task.request.get(REQUEST_ID)}
    structlog.contextvars.bind_contextvars(**{name: value for name, value in ids.items() if value})


@signals.task_postrun.connect
def _unbind(**given: Any) -> None:
    structlog.contextvars.unbind_contextvars("task", "task_id", REQUEST_ID)
