"""Whatever comes in, the answer is a specification or a WorkloadError that names a field: never a crash."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.workload.schema import Spec, parse
from advisor.workload.text import WorkloadError

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SECTIONS = st.dictionaries(st.sampled_from([*Spec.model_fields, "other"]), VALUES, max_size=6)


def outcome(data: Any) -> dict[str, Any] | None:
    try:
        return parse(data)
    except WorkloadError as trouble:
        assert trouble.errors
        assert all(set(error) == {"field", "message", "allowed"} for error in trouble.errors)
        assert all(isinstance(text, str) for error in trouble.errors for text in error.values())
        return None


@patient
@given(SECTIONS)
def test_any_mapping(data: dict[str, Any]) -> None:
    outcome(data)


@patient
@given(VALUES, st.sampled_from(["input_tokens", "output_tokens", "requests_per_s", "users", "load_curve"]))
def test_any_traffic(value: Any, key: str) -> None:
    traffic = {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1, key: value}
    spec = outcome({"model": "m", "traffic": traffic})
    if spec is not None:
        assert parse(json.loads(json.dumps(spec, allow_nan=False))) == spec


@patient
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text(text: str | bytes) -> None:
    outcome(text)
