"""What a web process loads in the background after its start, so that nobody's first page waits for it.

Templates are compiled, the scorecard is read, and one quick estimate loads the catalog for those of other questions.
Together about 2 s of CPU time. ASSAY_WARM=0 leaves it out.
"""

import threading
from pathlib import Path

import structlog
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.template.loader import get_template

from advisor.fidelity import nearest_rows, scorecard
from advisor.web import quick_estimate

log = structlog.get_logger("assay.web")
OWN = ("advisor", "catalog", "probes")


def in_background() -> None:
    if settings.WARM:
        threading.Thread(target=load, name="warm", daemon=True).start()


def load() -> None:
    """Loads everything; whatever is missing is loaded by the first page that needs it."""
    try:
        for name in templates():
            get_template(name)
        scorecard.card()
        nearest_rows.imported_runs()
        quick_estimate.load()
    except Exception as error:  # a server without a catalog or a database starts all the same
        log.info("not_warm", reason=str(error))
    finally:
        connections.close_all()


def templates() -> list[str]:
    folders = [Path(apps.get_app_config(name).path) / "templates" for name in OWN]
    return [str(path.relative_to(folder)) for folder in folders for path in sorted(folder.rglob("*.html"))]
