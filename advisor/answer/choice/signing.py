"""What to do about the first choice: sign it, keep what is there, test first; with its margins, terms and amounts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.answer.choice.alternatives import Choice, price_ratio_to_win
from advisor.answer.owned import kept_instances, team_usd_per_month
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.plans import COMMITMENT
from advisor.engine.search import (
    Arranged,
    Scored,
    commits,
    has_limits,
    instances_of,
    packing_of,
    price_share,
    rate_usd_per_hour,
    resized_usd_per_hour,
    tpot_limit_s,
)
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import rounded
from advisor.result import (
    MUCH_CHEAPER_FRACTION,
    Answer,
    ApiOption,
    Decision,
    Gate,
    LadderStep,
    Option,
    Settle,
    TermOffer,
)
from advisor.workload import LOAD_TEST_HOURS

BUDGET_QUANTILE = 0.8
TERM_NAMES = {"reserved_1y": "one-year term", "reserved_3y": "three-year term"}


def signed(question: Question, choice: Choice, arranged: Arranged, answer: Answer) -> Decision | None:
    """The decision with what to do about the first choice."""
    decision = answer.decision
    if decision is None or not answer.recommendations:
        return decision
    first = answer.recommendations[0]
    at = _place(answer, choice)
    s = choice.outcome.shown[at] if at is not None else None
    fails = 0 in arranged.fails
    api = None if fails or s is None or not commits(s) else untested_api(answer, choice.candidates[0].expected_usd)
    if api is not None:
        gate: Gate | None = _api_gate(question.workload, answer, api)
    else:
        gate = _gate(question, answer, choice, s, decision.settle, fails)
    drawn = _drawn(answer, choice, at)
    decision = decision.changed(
        action=_action(choice, arranged, at, fails or api is not None),
        gate=gate,
        expected_usd_per_month=None if drawn is None else rounded(float(drawn.mean())),
        budget_usd_per_month=None if drawn is None else rounded(float(np.quantile(drawn, BUDGET_QUANTILE))),
        tied_ranks=[k + 1 for k in arranged.tied] if not fails else [],
        tie_breaker=decision.settle.said if arranged.tied and decision.settle else "",
    )
    if not isinstance(first, Option | ApiOption):
        return decision
    decision = decision.changed(team_usd_per_month=rounded(team_usd_per_month(first)))
    if s is None or at is None:
        return decision
    return decision.changed(ladder=ladder(question.workload, choice, s, at), terms=_terms(choice, at))


def _place(answer: Answer, choice: Choice) -> int | None:
    """The place of the first option among the deployments that were drawn; None: an API, or it scales to zero."""
    first = answer.recommendations[0]
    if not isinstance(first, Option) or first.scale_to_zero is not None or not choice.outcome.shown:
        return None
    return 0


def _drawn(answer: Answer, choice: Choice, at: int | None) -> np.ndarray | None:
    """What the first option costs a month in each draw, without what a sale would have brought."""
    if at is None:
        first = answer.recommendations[0]
        return choice.costs.drawn_api(first.usd_per_month) if isinstance(first, ApiOption) else None
    found = choice.costs.costs(choice.costs.draws)[at]
    return None if found is None else found.usd_per_month


def _action(choice: Choice, arranged: Arranged, at: int | None, fails: bool) -> Any:
    s = choice.outcome.shown[at] if at is not None else None
    if fails:
        return "do_not_sign"
    if at is not None and choice.candidates[at].apart:
        return "get_quote"
    if s is not None and kept_instances(s) and kept_instances(s) >= s.instances:
        return "keep"
    return "no_clear_winner" if arranged.tied else "sign"


# --- what to learn before signing -------------------------------------------------------------------------------


def _gate(
    question: Question, answer: Answer, choice: Choice, s: Scored | None, settle: Settle | None, fails: bool
) -> Gate | None:
    """The test or quote that can change the choice; None: none can."""
    months = question.workload.horizon_months
    first = answer.recommendations[0]
    if s is not None and choice.candidates[0].over_budget:
        return _budget_gate(question.workload, choice, answer)
    if fails and s is not None and has_limits(question.workload):
        return _limit_gate(question.workload, choice, answer, s)
    if s is not None and not fails and choice.candidates[0].apart:
        return _quote_gate(question, choice, answer, s)
    if settle is None or settle.kind == "none" or settle.worth_usd_per_month <= 0.0:
        return None
    usd = settle.worth_usd_per_month
    test = settle.measurement
    cost: float | None = None
    if settle.kind == "measurement" and test is not None and test.turning_tpot_ms is not None:
        metric, unit, what = "mean TPOT of one replica", "ms", test.said
        value: float | None = test.turning_tpot_ms
        cost, after = load_test_usd(answer, choice, test.rank), test.winner_after
        worse_wins = test.turning_tpot_ms >= (test.predicted_tpot_ms or 0.0)
    else:
        metric, value, unit, what = settle.input, settle.at_ratio, "times the expected value", settle.said
        after, worse_wins = settle.winner_after, (settle.at_ratio or 1.0) > 1.0
    if after in ("", first.label):
        return None
    better, worse = (first.label, after) if worse_wins else (after, first.label)
    price = "" if cost is None else f" for about {usd_text(cost)}"
    return Gate(
        kind="load_test" if test is not None and metric.startswith("mean TPOT") else "other",
        metric=metric,
        value=value,
        unit=unit,
        better_than_value=better,
        worse_than_value=worse,
        test=what,
        test_usd=None if cost is None else rounded(cost),
        worth_usd_per_month=usd,
        worth_usd=rounded(usd * months),
        sign_today=first.label,
        said=(
            f"{what} Knowing it{price} is worth {usd_text(usd)} a month on average, "
            f"{usd_text(usd * months)} over {months} months."
        ),
    )


def _limit_gate(workload: Workload, choice: Choice, answer: Answer, s: Scored) -> Gate:
    """The load test that decides whether an option meets the limit that it is likeliest to miss."""
    v, slo = s.verified, workload.slo
    limits = [
        ("p95 TTFT", slo.ttft_p95_s, v.ttft_p95_s),
        ("p95 TPOT", tpot_limit_s(workload), v.tpot_p95_s),
        ("p95 end-to-end latency", slo.e2e_p95_s, v.e2e_p95_s),
        ("run time", workload.deadline_s, v.late_fraction * (workload.deadline_s or 0.0)),
    ]
    known = [(name, limit_s, seen_s) for name, limit_s, seen_s in limits if limit_s]
    metric, limit_s, _ = max(known, key=lambda each: each[2] / each[1])
    value, unit = (limit_s / 3600.0, "h") if metric == "run time" else (limit_s * 1e3, "ms")
    first = answer.recommendations[0]
    cost = load_test_usd(answer, choice, first.rank or 1)
    other = next((o for o in answer.recommendations[1:] if o.accelerator != first.accelerator), None)
    chance = s.slo_probability or 0.0
    return Gate(
        metric=metric,
        value=rounded(value),
        unit=unit,
        better_than_value=first.label,
        worse_than_value=other.label if other else "nothing in this answer",
        test=f"Load-test one replica of {first.label} at your peak",
        test_usd=None if cost is None else rounded(cost),
        worth_usd_per_month=0.0,
        worth_usd=0.0,
        sign_today="",
        said=(
            f"It meets your limits with {chance:.0%} probability, which is too little to sign. Load-test one replica "
            f"at its share of your peak: sign if {metric} stays within {value:g} {unit}."
        ),
    )


def _budget_gate(workload: Workload, choice: Choice, answer: Answer) -> Gate:
    """What an option must cost that exceeds the budget as expected, although its plan is within it."""
    first, limit = answer.recommendations[0], workload.constraints.max_usd_per_month or 0.0
    paid = choice.costs.paid_usd_per_month()[0]
    usd = first.usd_per_month if paid is None else float(paid.mean())
    return Gate(
        kind="budget",
        metric="its expected cost",
        value=rounded(limit),
        unit="USD a month",
        better_than_value=first.label,
        worse_than_value="nothing in this answer",
        test="Get a quote, or a firmer estimate of the load",
        test_usd=None,
        worth_usd_per_month=0.0,
        worth_usd=0.0,
        sign_today="",
        said=(
            f"Its plan costs {usd_text(first.usd_per_month or 0.0)} a month if load and prices stay as stated, and "
            f"{usd_text(usd)} on average over what may come, which is above your budget of {usd_text(limit)}."
        ),
    )


def untested_api(answer: Answer, expected_usd: float) -> ApiOption | None:
    """The cheapest hosted API that may be used, costs far less than this, and lacks only a published latency."""
    apis = [o for o in answer.recommendations if isinstance(o, ApiOption) and o.meets_slo is None]
    cheapest = min(apis, key=lambda o: o.usd_per_month, default=None)
    return cheapest if cheapest and cheapest.usd_per_month <= MUCH_CHEAPER_FRACTION * expected_usd else None


def _api_gate(workload: Workload, answer: Answer, api: ApiOption) -> Gate:
    """The test of an API that would make a commitment unnecessary."""
    first, slo = answer.recommendations[0], workload.slo
    limits = [("p95 TTFT", slo.ttft_p95_s), ("p95 TPOT", tpot_limit_s(workload)),
              ("p95 end-to-end latency", slo.e2e_p95_s)]  # fmt: skip
    metric, limit_s = next(((name, limit) for name, limit in limits if limit), ("p95 latency", None))
    saves = (first.usd_per_month or 0.0) - api.usd_per_month
    cost = api.usd_per_month / HOURS_PER_MONTH * LOAD_TEST_HOURS
    return Gate(
        kind="api",
        metric=f"{metric} of {api.label}",
        value=None if limit_s is None else rounded(limit_s * 1e3),
        unit="ms",
        better_than_value=api.label,
        worse_than_value=first.label,
        test=f"Send your own prompts to {api.label}",
        test_usd=rounded(cost),
        worth_usd_per_month=0.0,
        worth_usd=0.0,
        sign_today="",
        said=(
            f"Nobody publishes the p95 latency of {api.label}. Measure it before you commit: if it meets your limits, "
            f"it costs {usd_text(saves)} a month less."
        ),
    )


def _quote_gate(question: Question, choice: Choice, answer: Answer, s: Scored) -> Gate:
    """The quote that an option needs which is first only because nothing else remains, with the price that wins."""
    first, reason = answer.recommendations[0], choice.candidates[0].apart
    ratio = price_ratio_to_win(question, choice, price_share(s))
    usd = None if ratio is None else ratio * rate_usd_per_hour(s.offer)
    other = next((o for o in answer.recommendations[1:] if o.label != first.label), None)
    otherwise = other.label if other else "nothing in this answer"
    limit = "" if usd is None else f" It is first up to {usd_text(usd)} per accelerator-hour, above that {otherwise}."
    return Gate(
        kind="quote",
        metric="price of an accelerator",
        value=None if usd is None else rounded(usd),
        unit="USD/h",
        better_than_value=first.label,
        worse_than_value=otherwise,
        test=f"Get a written quote for {first.label}",
        test_usd=None,
        worth_usd_per_month=0.0,
        worth_usd=0.0,
        sign_today="",
        said=f"Get a written quote for {first.label} before you sign: {reason}.{limit}",
    )


def load_test_usd(answer: Answer, choice: Choice, rank: int) -> float | None:
    """Rent of the machines of one replica of an option for a load test, USD; None: they are not rented."""
    ranks = [o.rank for o in answer.deployments if o.scale_to_zero is None]  # hosted APIs stand between them
    s = choice.outcome.shown[ranks.index(rank)] if rank in ranks else None
    if s is None or s.offer.acquisition != "rent":
        return None
    return float(packing_of(s.lane.choice, s.offer).each) * s.offer.usd_per_hour * LOAD_TEST_HOURS


# --- margins and terms ------------------------------------------------------------------------------------------


def ladder(workload: Workload, choice: Choice, s: Scored, at: int) -> list[LadderStep]:
    """What each margin adds, from the machines for mean traffic to those of the first choice."""
    if workload.kind.released_after_run:
        return []
    base, surer = choice.sizes.get(at, (s, None))
    alike = base.lane == s.lane and base.offer.instance == s.offer.instance
    peak = min(base.replicas - base.spare_replicas, s.replicas - s.spare_replicas) if alike else (
        s.replicas - s.spare_replicas
    )  # fmt: skip
    each = s.capacity_requests_per_s / s.replicas
    mean = min(max(math.ceil(s.requests_per_s_mean / each - 1e-9), 1), peak)
    plain = _without_spares(workload)
    spared = workload if workload.slo.redundancy else replace(plain, slo=replace(plain.slo, spare_hosts=1))
    included = s.spare_replicas > 0
    bursty = workload.users is None and workload.arrival_cv > 1
    enough = "enough for the stated peak"
    enough += f" with bursty arrivals (coefficient of variation {workload.arrival_cv:.3g})" if bursty else ""
    steps = [
        _step("mean_traffic", True, plain, s, mean, "", "enough for the mean traffic"),
        _step("stated_peak", True, plain, s, peak, "traffic.requests_per_s.peak", enough),
        _step("one_host_lost", included, spared, s, peak, "slo.availability", "and one host may fail"),
    ]
    chance = workload.slo.sure_confidence
    limited = has_limits(workload) and s.slo_probability is not None and chance is not None
    if not limited:
        return steps
    said = f"and the limits hold with at least {chance:.0%} probability"
    held = workload if included else plain
    if (s.slo_probability or 0.0) >= (chance or 0.0):
        carrying = s.replicas - s.spare_replicas
        steps.append(_step("confidence", True, held, s, carrying, "slo.confidence", said))
    elif surer is not None:
        carrying = surer.replicas - surer.spare_replicas
        steps.append(_step("confidence", False, held, surer, carrying, "slo.confidence", said))
    return steps


def _without_spares(workload: Workload) -> Workload:
    return replace(workload, slo=replace(workload.slo, spare_hosts=0, doubled=False, default_spares=False))


def _step(
    name: Any, included: bool, workload: Workload, s: Scored, carrying: int, switch: str, said: str
) -> LadderStep:
    """A size of the deployment with what this workload's redundancy adds."""
    chips = int(instances_of(workload, s, s.offer, carrying)) * s.offer.accelerators
    usd = float(resized_usd_per_hour(workload, s, carrying + s.spare_replicas, 1.0)) * HOURS_PER_MONTH
    replicas = int(workload.slo.redundancy.replicas(carrying, packing_of(s.lane.choice, s.offer)))
    return LadderStep(
        name=name,
        included=included,
        replicas=replicas,
        accelerators=chips,
        usd_per_month=rounded(usd),
        switch=switch,
        said=f"{chips:,} x {s.lane.choice.accelerator.name}, {usd_text(usd)} a month: {said}",
    )


def _terms(choice: Choice, at: int) -> list[TermOffer]:
    """The term that costs less as expected and is not taken; empty: none, or the first choice is one."""
    left = choice.committed.get(at)
    if left is None or left.saves_fraction <= 0.0 or commits(choice.outcome.shown[at]):
        return []
    s = left.scored
    assert s.planned is not None
    due = float(s.planned.plan.payments[COMMITMENT].sum())
    name = TERM_NAMES.get(s.offer.term, s.offer.term.replace("_", " "))
    return [
        TermOffer(
            term=s.offer.term,
            provider=s.offer.provider,
            label=f"{s.chips:,} x {s.lane.choice.accelerator.name}",
            saves_fraction=rounded(left.saves_fraction, 4),
            liability_usd=rounded(due),
            stays_cheapest_probability=rounded(left.cheaper_fraction, 4),
            said=(
                f"A {name} at {s.offer.provider} saves {left.saves_fraction:.0%} as expected and binds "
                f"{usd_text(due)}. It stays cheaper than the hour with {left.cheaper_fraction:.0%} probability, "
                "falling rents and load included."
            ),
        )
    ]
