"""What the choice itself says in the JSON of `advise`: scores, weights, and how sure the order is."""

from typing import Any

from advisor.engine.plan import Workload
from advisor.engine.scores import NAMES, Score, weights_of
from advisor.engine.search import Answer, Scored

Json = dict[str, Any]


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def scores_json(answer: Answer, s: Scored) -> Json:
    """Ecosystem, team, lead time, lock-in of one option with the facts they were counted from; 1 is best."""
    assert answer.scale.declared is not None
    found, risk = answer.scale.declared.of(s.lane, s.offer)
    return {**{name: score_json(found[name]) for name in NAMES}, "risk_fraction": rounded(risk)}


def score_json(score: Score) -> Json:
    known = score.width_fraction == 0
    return {
        "value": rounded(score.low_fraction) if known else "unknown",
        "low": rounded(score.low_fraction),
        "high": rounded(score.high_fraction),
        "facts": list(score.facts),
    }


def weights_json(workload: Workload) -> Json:
    """Of the balanced view: the planner's own over the defaults."""
    return weights_of(workload)
