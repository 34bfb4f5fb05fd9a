"""The Celery tasks, which call advise.py and studies/.

Their names must not change, so that queued messages stay valid.
"""

from django.conf import settings

from advisor import advise, bundles, load_tests, refresh, webhooks
from advisor.celery import app
from advisor.studies import parts, pieces
from catalog.models import Organisation


@app.task(name="advice.run")
def run_advice(pk: str) -> None:
    advise.run(pk, parts.together)


@app.task(name="advice.sweep")
def sweep() -> None:
    if advise.sweep_is_due():
        pieces.sweep()
        webhooks.sweep()
        load_tests.correct_next()


@app.task(name="webhooks.send")
def send_webhooks() -> None:
    webhooks.send_due()


@app.task(name="study.run")
def run_study(pk: str, wave: int) -> None:
    pieces.run(pk, wave, parts.together)


@app.task(name="catalog.bundle", soft_time_limit=3000, time_limit=3300)
def apply_bundle() -> None:
    bundles.refresh_from(settings.BUNDLE_URL, by="beat")


@app.task(name="answers.compare", soft_time_limit=3000, time_limit=3300)
def compare_answers(organisation: int, by: str) -> None:
    refresh.compare(by, Organisation.objects.get(pk=organisation))


@app.task(name="prices.sync", soft_time_limit=3000, time_limit=3300)  # many answers are compared
def sync_prices() -> None:
    refresh.run([], by="beat")
