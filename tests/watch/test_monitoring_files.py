"""The dashboard and the alert rules use metrics and labels that /metrics has."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from advisor.watch import http, tallies
from probes.status import metrics
from tests.world import ROOT

pytestmark = pytest.mark.django_db
FOLDER = ROOT / "deploy" / "monitoring"


def expressions() -> Iterator[str]:
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def exported() -> dict[str, set[str]]:
    """The labels of each exported name, also of those that have no value yet."""
    names: dict[str, set[str]] = {}
    tallies.add(tallies.observed(tallies.PART_S, "wait", 1.0))
    http.REQUESTS.labels("x", "GET", 200).inc()
    http.SECONDS.labels("x", "GET").observe(1)
    for family in text_string_to_metric_families(metrics.text().decode()):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        names |= {f"{family.name}{suffix}": labels for suffix in suffixes}
    return names


def used(expression: str) -> dict[str, set[str]]:
    """The labels that an expression asks of each metric."""
    found: dict[str, set[str]] = {}
    for name, matchers in re.findall(r"(assay_[a-z_]+)(?:\{([^}]*)\})?", expression):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        for wanted in found.values():
            wanted.update(label.strip() for label in labels.split(",") if label.strip() != "le")
    return found


def test_every_expression_uses_exported_names_and_labels() -> None:
    names, wrong = exported(), []
    lacking = {"assay_answers_running": {"organization"}, "assay_answers_queued": {"organization"}}  # without answers
    for expression in expressions():
        assert used(expression) or expression.startswith("up{"), expression
        assert expression.count("(") == expression.count(")"), expression
        for name, labels in used(expression).items():
            if name not in names or not labels <= names[name] | lacking.get(name, set()):
                wrong.append((name, labels, expression))
    assert wrong == []


def test_a_wrong_name_or_label_would_be_found() -> None:
    assert used('max by (part, le) (rate(assay_x_bucket{a="1", b=~"2"}[5m])) > assay_y') == {
        "assay_x_bucket": {"a", "b", "part"},
        "assay_y": {"part"},
    }
    assert "assay_queue_lengths" not in exported() and "colour" not in exported()["assay_queue_length"]


def test_every_alert_says_what_is_wrong_and_how_urgent_it_is() -> None:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names))
    assert all(rule["annotations"]["summary"] for rule in group["rules"])
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"page", "ticket"}
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    plain = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in exported()}
    assert sorted(name for name in plain if name not in page) == []
