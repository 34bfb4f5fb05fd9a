"""The API and its description agree: schemathesis calls every operation as three callers, with ids that exist.

`make test` makes a few calls of each kind, the same ones each time; `make soak` many, and every edge of every value.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.described import CALLERS, Described

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CALLS = int(os.environ.get("ASSAY_API_CALLS", 2))  # of each operation that fit the description, and that do not
IN_FULL = "ASSAY_API_CALLS" in os.environ
# A generator guesses no enrollment token, no hash, no bill and no slug to confirm, and is no person with an account.
# Others need what only other people's requests make: a disputed registration, a calibration that machines measured, and
# an imported model; a price that is held, two answers to compare, a link's secret, a saved view, or a model's files.
NEVER_DONE = {
    "POST /api/agent/v1/register",
    "PUT /api/agent/v1/jobs/{id}/attempts/{attempt}/result",
    "POST /api/v1/advice/{id}/options/{rank}/load-tests",
    "POST /api/v1/advice/{id}/actuals",
    "POST /api/v1/deployments/compare",
    "POST /api/v1/advice/{id}/what-if",
    "POST /api/v1/agents/{id}/approve",
    *("GET /api/v1/compare", "GET /api/v1/compare.csv", "POST /api/v1/advice/{id}/successors"),
    *(f"GET /api/v1/shared/{{token}}{more}" for more in ("", "/documents/{name}", "/what-if")),
    *(f"POST /api/v1/held-prices/{{id}}/{act}" for act in ("discard", "release")),
    *("DELETE /api/v1/saved-views/{id}", "POST /api/v1/models/import", "POST /api/v1/models/{slug}/share"),
    "POST /api/v1/own-tokens/{id}/revoke",
    "GET /api/v1/calibrations/{id}",
    "POST /api/v1/calibrations/{id}/undo",
    "DELETE /api/v1/models/{slug}",
    "DELETE /api/v1/organization",
    *(f"{method} /api/v1/members/{{id}}" for method in ("PATCH", "DELETE")),
    *("POST /api/v1/own-tokens", "DELETE /api/v1/own-tokens/{id}", "POST /api/v1/own-tokens/{id}/rotate"),
}


@pytest.fixture
def api(settings: Any, woken: list[str], tmp_path: Path) -> Described:
    for name in dir(settings):
        if name.startswith("PROBE_") and name.endswith(("_AGENT", "_ADDRESS", "REFUSALS_PER_MINUTE")):
            setattr(settings, name, 10**9)
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_CLASSES": []}
    return Described(tmp_path)


@pytest.mark.parametrize(
    "caller", [pytest.param(caller, marks=pytest.mark.soak) if caller == "anonymous" else caller for caller in CALLERS]
)
def test_generated_calls_are_answered_as_described(api: Described, caller: str) -> None:
    found = [text for label in api.labels for text in api.generated(label, caller, CALLS)]
    if IN_FULL:
        found += [text for label in api.labels for text in api.covered(label, caller)]
    assert not found, "\n\n".join(found)
    if caller == "admin":
        missed = set(api.labels) - api.done - NEVER_DONE
        for label in missed:  # which values a few calls draw changes with every edit of the description
            api.generated(label, caller, 20 * CALLS)
        missed -= api.done
        assert not missed, sorted(missed)
