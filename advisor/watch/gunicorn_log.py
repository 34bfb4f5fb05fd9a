"""gunicorn's lines in the format of all others: pass `--logger-class advisor.watch.gunicorn_log.Logger`."""

from typing import Any

import structlog
from gunicorn.glogging import Logger as GunicornLogger

from advisor.watch import logs

log = structlog.stdlib.get_logger("gunicorn.access")


class Logger(GunicornLogger):
    """Without ASSAY_LOG_JSON it is gunicorn's own."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        if logs.as_json():
            for handler in (*self.error_log.handlers, *self.access_log.handlers):
                handler.setFormatter(logs.formatter())

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        if not logs.as_json():
            return super().access(resp, req, environ, request_time)
        if self.access_log_enabled:
            given = {name.lower(): value for name, value in resp.headers}
            log.info(
                "request",
                request_id=given.get(logs.HEADER.lower(), ""),
                method=environ.get("REQUEST_METHOD"),
                path=environ.get("PATH_INFO"),
                status=int(str(resp.status).split()[0]),
                duration_ms=round(request_time.total_seconds() * 1000, 3),
                address=environ.get("REMOTE_ADDR", ""),
            )
