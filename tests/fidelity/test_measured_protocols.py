"""The rules of protocols.yaml: strict, ordered, and never about one row."""

import pytest

from advisor.fidelity.protocols import CONDITIONS, ProtocolError, rules, run_of

FACTS = {"source": "s", "framework": "vllm", "model": "m"}


def written(tmp_path, text):
    path = tmp_path / "protocols.yaml"
    path.write_text(text)
    return path


def test_later_rules_override_earlier_ones(tmp_path):
    path = written(
        tmp_path,
        """
rules:
  - {when: {source: s}, set: {client: {kind: burst, known: true}, kv_dtype: fp8}, why: first}
  - {when: {source: s, framework: [sglang, vllm]}, set: {client: {requests_per_user: 1}, kv_dtype: bf16}, why: second}
  - {when: {source: other}, set: {kv_dtype: int8}, why: elsewhere}
""",
    )
    run = run_of(FACTS, path)
    assert (run.client.kind, run.client.requests_per_user, run.client.known) == ("burst", 1, True)
    assert run.kv_dtype == "bf16"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{when: {id: row-7}, set: {}, why: x}", "unknown conditions"),
        ("{when: {source: s}, set: {speed: 2}, why: x}", "cannot set"),
        ("{when: {source: s}, set: {client: {pace: 2}}, why: x}", "unknown client fields"),
        ("{when: {source: s}, set: {client: {kind: storm}}, why: x}", "not one of"),
        ("{when: {source: s}, set: {}}", "`why` is missing"),
        ("{when: {source: s}, set: {}, why: x, who: y}", "unknown keys"),
    ],
)
def test_a_wrong_rule_is_refused(tmp_path, rule, message):
    with pytest.raises(ProtocolError, match=message):
        run_of(FACTS, written(tmp_path, f"rules:\n  - {rule}\n"))


def test_no_shipped_rule_can_see_a_row():
    assert not {"id", "value", "metric"} & set(CONDITIONS)
    assert len(rules()) > 20
