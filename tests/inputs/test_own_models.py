"""A config.json of a measured shape is corrected as the catalog's model of that shape."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.network import Adapters
from advisor.inputs import current, measured

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize("adapters", [None, Adapters(count=4, rank=16, active=4, attention_only=True)])
def test_adapters_change_no_shape(adapters: Adapters | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(measured, "scopes_for", lambda name, *_, **__: asked.append(name) or {})
    model_id, known = current.resources_with(LLAMA)
    own = replace(known, models={"own-model": replace(known.models[model_id], adapters=adapters)})
    current.corrections(own, "own-model", "h100-sxm", 1000.0, 200.0)
    assert asked == [LLAMA]
