"""Answers as the JSON that users get, for tests of keys and figures."""

from typing import Any

from advisor import answer
from advisor.answer.estimates import single_estimate
from advisor.answer.estimates import training_estimate as trained
from advisor.inputs import Snapshot
from advisor.workload import Deployment, TrainingRun, parse_estimate


def recommend(spec: dict[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    return answer.recommend(spec, snapshot).to_json()


def estimate(deployment: Deployment) -> dict[str, Any]:
    return single_estimate.answer(deployment).to_json()


def training_estimate(body: dict[str, Any]) -> dict[str, Any]:
    run = parse_estimate(body)
    assert isinstance(run, TrainingRun)
    return trained.answer(run).to_json()
