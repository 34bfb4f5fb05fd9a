"""What is deleted by age, in bounded batches, and that nothing is unless a setting says so."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.utils import timezone

from advisor import advise, deletion, load_tests
from advisor.api import tokens
from advisor.models import Advice, ApiToken, LoadTest, Share, Study
from catalog.accounts import retention
from catalog.models import Retention
from tests import sample_advice
from tests.sample_load_results import vllm, written

pytestmark = pytest.mark.django_db
KINDS = ("ADVICE", "FAILED", "STUDIES", "SHARES", "LOAD_TESTS", "TOKENS", "LOGINS")


def old_rows() -> None:
    """One of each kind that ended forty days ago, and one of each that is younger."""
    for age in (timedelta(days=40), timedelta(days=1)):
        then = timezone.now() - age
        for state in ("done", "failed", "cancelled"):
            advice = sample_advice.advice(state=state, error="lost")
            Advice.objects.filter(pk=advice.pk).update(finished_at=then, created_at=then)
            if state == "done":
                Share.objects.create(organisation=advice.organisation, advice=advice, expires_at=then)
                load_tests.record(advice.options.get(rank=1), written(vllm()), "r.json")
                LoadTest.objects.filter(option__advice=advice).update(created_at=then)
        ended = {"prices_as_of": then.date(), "finished_at": then}
        Study.objects.create(organisation=advice.organisation, name="grid", kind="grid", points=1, **ended)
        row = tokens.make("ci", "read")[1]
        ApiToken.objects.filter(pk=row.pk).update(revoked_at=then)
        Session.objects.create(session_key=f"{age.days}", session_data="", expire_date=then)
        attempt = AccessAttempt.objects.create(
            username=f"ada{age.days}", ip_address="192.0.2.1", failures_since_start=1
        )
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=then)
    sample_advice.advice(state="queued")
    sample_advice.advice(state="running")


def counts() -> dict[str, int]:
    return {
        "ADVICE": Advice.objects.filter(state="done").count(),
        "FAILED": Advice.objects.filter(state__in=("failed", "cancelled")).count(),
        "STUDIES": Study.objects.count(),
        "SHARES": Share.objects.count(),
        "LOAD_TESTS": LoadTest.objects.count(),
        "TOKENS": ApiToken.objects.count(),
        "LOGINS": Session.objects.count() + AccessAttempt.objects.count(),
    }


@pytest.fixture(autouse=True)
def kept_for_ever(settings: Any) -> None:
    for kind in KINDS:
        setattr(settings, f"KEEP_{kind}_DAYS", None)


def test_nothing_is_deleted_unless_a_setting_says_so(woken: list[str]) -> None:
    old_rows()
    before = counts()
    assert advise.sweep()["deleted"] == 0
    call_command("retention")
    assert counts() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_deletes_its_own_kind_alone(kind: str, settings: Any, woken: list[str]) -> None:
    old_rows()
    before = counts()
    setattr(settings, f"KEEP_{kind}_DAYS", 30)
    assert advise.sweep()["deleted"] > 0
    belongs = {"ADVICE": {"SHARES", "LOAD_TESTS"}}.get(kind, set())
    expected = {name: n // 2 if name == kind or name in belongs else n for name, n in before.items()}
    assert counts() == expected
    assert Advice.objects.filter(state__in=("queued", "running")).count() == 2
    assert advise.sweep()["deleted"] == 0


def test_an_organization_can_set_the_days_of_every_kind_that_belongs_to_it() -> None:
    columns = {rule.column for rule in deletion.RULES if rule.owner}
    fields = {field.name for field in Retention._meta.get_fields()}
    assert columns <= fields and columns == set(retention.NAMES)


def test_a_sweep_deletes_a_bounded_batch_and_the_command_all(
    settings: Any, monkeypatch: pytest.MonkeyPatch, woken: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings.KEEP_ADVICE_DAYS = 30
    for _ in range(5):
        sample_advice.advice()
    Advice.objects.update(finished_at=timezone.now() - timedelta(days=31))
    assert deletion.delete_expired(limit=2) == 2 and counts()["ADVICE"] == 3
    call_command("retention", "--dry-run")
    assert "answers: 3 older than 30 days" in capsys.readouterr().out and counts()["ADVICE"] == 3
    call_command("retention")
    said = capsys.readouterr().out
    assert "deleted 3 rows" in said and "expired and revoked tokens: kept (ASSAY_KEEP_TOKENS_DAYS is not set)" in said
    assert counts()["ADVICE"] == 0


def test_an_answer_that_was_superseded_goes_and_its_successor_stays(settings: Any, woken: list[str]) -> None:
    settings.KEEP_ADVICE_DAYS = 30
    first = sample_advice.advice()
    last = advise.rescore(first)
    Advice.objects.filter(pk=first.pk).update(finished_at=timezone.now() - timedelta(days=31))
    assert advise.sweep()["deleted"] == 1
    last.refresh_from_db()
    assert last.supersedes is None and Advice.objects.get() == last


@pytest.mark.parametrize("given", ["0", "-1", "ten", "1.5", "99999"])
def test_a_number_of_days_that_makes_no_sense_stops_the_start_with_the_reason(given: str, tmp_path: Path) -> None:
    env = {**os.environ, "ASSAY_KEEP_ADVICE_DAYS": given, "ASSAY_VAR": str(tmp_path)}
    env["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    command = [sys.executable, "-c", "from django.conf import settings; settings.KEEP_ADVICE_DAYS"]
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert found.returncode != 0 and f"ASSAY_KEEP_ADVICE_DAYS={given}: use a whole number of days" in found.stderr
