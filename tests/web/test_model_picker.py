"""Which models the pages suggest, and in which order."""

import pytest

from advisor.web.forms import models_by_use
from catalog.models import ServedModel

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def test_models_that_only_measurements_need_are_not_suggested() -> None:
    rows = ServedModel.objects.all()
    unasked = rows[0]
    unasked.checkpoints = {**unasked.checkpoints, "measured_only": True}
    unasked.save()
    hidden = {row.hf_id for row in rows if row.checkpoints.get("measured_only")}
    assert unasked.hf_id in hidden
    assert set(models_by_use()) == {row.hf_id for row in rows} - hidden


def test_models_that_most_providers_host_are_suggested_first() -> None:
    rare = ServedModel.objects.all()[0]
    rare.checkpoints = {**rare.checkpoints, "hosting": {"providers": 999}}
    rare.save()
    assert models_by_use()[0] == rare.hf_id
