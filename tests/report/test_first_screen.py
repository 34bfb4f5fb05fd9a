"""The first screen of an answer: one sentence on what to do, few figures, plain words, whole machines."""

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import report
from advisor.report import screen_of, screen_text
from advisor.report.screen import facts, rows
from advisor.report.screen.facts import Fact
from advisor.report.screen.screen import MOST_LINES, Screen, shortened
from advisor.result import Answer, Decision, Gate, Option, PlanStep, Settle, StepBudget, TermOffer
from catalog import clock
from tests import sample_advice, stored_answers
from tests.report import sample_plan
from tests.report.test_documents import api_first, fleet_item, portfolio

KINDS = sorted(stored_answers.stored())
SETUP = re.compile(r"\b(TP|PP|EP|DP|CP)\d|\bFP8\b|\bBF16\b|\bINT8\b|EAGLE|vLLM|TensorRT|SGLang|--\w|ZeRO|replicas?,")
PART_OF_A_MACHINE = re.compile(r"\b1/\d|\d/8 of")


def made() -> dict[str, Answer]:
    """Answers of every kind: stored ones, samples, and those of earlier versions."""
    samples = {
        "sample": Answer.read(sample_advice.result()),
        "plan": Answer.read(sample_plan.result()),
        "api-first": api_first(),
        "fleet": portfolio([fleet_item()]),
        "nothing": Answer.read({**sample_advice.result(), "recommendations": [], "decision": None}),
    }
    return stored_answers.answers() | samples


def above_the_table(screen: Screen) -> str:
    return " ".join([screen.todo, *(f"{fact.label} {fact.text}" for fact in screen.facts)])


def figures(text: str) -> int:
    return sum(any(character.isdigit() for character in word) for word in text.split())


@pytest.fixture(scope="module")
def screens() -> dict[str, Screen]:
    return {name: screen_of(answer) for name, answer in made().items()}


def test_every_answer_fits_the_screen(screens: dict[str, Screen]) -> None:
    for name, screen in screens.items():
        said = above_the_table(screen)
        rest = " ".join([screen.title, screen.question, *screen.table.words(), *screen.below])
        assert figures(said) <= 20, (name, said)
        assert len(said.split()) <= 120, (name, said)
        assert figures(said) + figures(rest) <= 45, (name, said, rest)
        assert len(screen.table.rows) <= 4, name
        assert sum(fact.label == "Before signing" for fact in screen.facts) <= 2, name


def test_no_configuration_and_no_part_of_a_machine_is_above_the_table(screens: dict[str, Screen]) -> None:
    for name, screen in screens.items():
        assert not SETUP.search(above_the_table(screen)), (name, above_the_table(screen))
        assert not any(SETUP.search(row.what) or PART_OF_A_MACHINE.search(row.what) for row in screen.table.rows), name


def test_what_to_do_is_one_sentence(screens: dict[str, Screen]) -> None:
    for name, screen in screens.items():
        assert screen.todo.endswith(".") and ". " not in screen.todo and "\n" not in screen.todo, (name, screen.todo)
        assert screen.title not in ("", "untitled"), name


def test_the_cheapest_hosted_api_is_always_among_the_rows_with_its_reason(screens: dict[str, Screen]) -> None:
    shown = 0
    for name, answer in made().items():
        if not answer.hosted or answer.portfolio:
            continue
        cheapest = min(answer.hosted, key=lambda each: each.usd_per_month)
        seller = cheapest.provider_name or cheapest.provider
        (row,) = [row for row in screens[name].table.rows if row.what == f"Hosted API of {seller}"]
        assert row.why, name
        shown += 1
    assert shown > 5


def test_runner_ups_differ_in_chip_seller_or_way_to_pay(screens: dict[str, Screen]) -> None:
    for name, screen in screens.items():
        names = [re.sub(r"^[\d,]+ × ", "", row.what) for row in screen.table.rows]
        assert len(names) == len(set(names)), (name, names)


def test_a_terminal_gets_at_most_25_lines(screens: dict[str, Screen]) -> None:
    for name, screen in screens.items():
        lines = screen_text(screen, "For all figures, add --full.").splitlines()
        assert len(lines) <= MOST_LINES, (name, lines)
        assert screen.todo.split(",")[0] in "\n".join(lines), name


def test_markdown_begins_with_the_same_text(screens: dict[str, Screen]) -> None:
    for name, answer in made().items():
        start = letters(report.markdown(answer).split("## In full")[0])
        for told in (screens[name].todo, *(fact.text for fact in screens[name].facts)):
            assert letters(told) in start, (name, told)


def letters(text: str) -> str:
    """Without spaces and escapes."""
    return re.sub(r"[\s\\]|&\w+;", "", text.replace("&gt;", ">").replace("&lt;", "<"))


# --- constructed decisions --------------------------------------------------------------------------------------


def decided(**given: Any) -> Answer:
    """The sample with a decision that states these fields."""
    answer = Answer.read(sample_plan.result())
    decision = answer.decide()
    assert decision is not None
    return answer.changed(decision=decision.changed(**given))


def gate(**given: Any) -> Gate:
    values = {
        "metric": "p95 TPOT", "value": 40.0, "unit": "ms", "better_than_value": "", "worse_than_value": "",
        "test": "Load-test one replica of the first option at your peak", "test_usd": 60.0,
        "worth_usd_per_month": 0.0, "worth_usd": 0.0, "sign_today": "", "said": "",
    }  # fmt: skip
    return Gate.read(values | given)


def said(answer: Answer, label: str) -> list[str]:
    return [fact.text for fact in screen_of(answer).facts if fact.label == label]


def test_expected_cost_and_budget_are_those_of_the_decision() -> None:
    answer = decided(expected_usd_per_month=50_000.0, budget_usd_per_month=61_000.0, team_usd_per_month=8_000.0)
    assert said(answer, "Cost") == [
        "Expected $50,000 a month: bill $42,000, team $8,000. Budget $61,000, enough in four of five cases."
    ]
    assert screen_of(answer).table.rows[0].usd == "$50,000"


def test_an_answer_of_an_earlier_version_falls_back_to_its_planned_cost_and_range() -> None:
    answer = decided()
    assert answer.decision is not None and answer.decision.expected_usd_per_month is None
    (cost,) = said(answer, "Cost")
    assert cost.startswith("Expected $14,072 a month") and "enough in nearly all cases" in cost


@pytest.mark.parametrize(
    ("limit", "expected", "budget", "fit"),
    [
        (60_000.0, 50_000.0, 55_000.0, "Within your budget, with room for bad cases."),
        (60_000.0, 50_000.0, 65_000.0, "Within your budget as expected, above it"),
        (60_000.0, 61_000.0, 70_000.0, "Above your budget."),
        (None, 61_000.0, 70_000.0, ""),
    ],
)
def test_the_budget_is_compared_with_both_amounts(
    limit: float | None, expected: float, budget: float, fit: str
) -> None:
    answer = decided(expected_usd_per_month=expected, budget_usd_per_month=budget)
    workload = {**answer.workload, "constraints": {"max_usd_per_month": limit}}
    found = said(answer.changed(workload=workload), "Your budget")
    assert found == [] if not fit else found[0].startswith(fit)


def test_what_is_not_sure_enough_is_not_signed_before_its_test() -> None:
    screen = screen_of(decided(action="do_not_sign", gate=gate()))
    assert screen.todo.startswith("Do not sign yet: ") and "only if p95 TPOT stays within 40 ms" in screen.todo
    assert "costs $60" in [fact.text for fact in screen.facts if fact.label == "Before signing"][0]


def test_a_tie_names_the_others_and_what_we_would_take() -> None:
    answer = decided(action="no_clear_winner", tied_ranks=[2])
    screen = screen_of(answer)
    assert screen.todo.startswith("No clear winner: ") and "we would " in screen.todo
    assert screen.table.rows[1].why.startswith("tied")


def test_a_quote_comes_first_where_no_price_can_be_signed() -> None:
    assert screen_of(decided(action="get_quote")).todo.startswith("Get a quote: ")


@pytest.mark.parametrize(
    ("hosts", "used", "todo"),
    [
        (2, 1, "Keep: one of your two servers is enough."),
        (4, 3, "Keep: three of your four servers are enough."),
        (2, 2, "Keep: your two servers are enough."),
        (1, 1, "Keep: your one server is enough."),
    ],
)
def test_owned_servers_that_suffice_are_kept(hosts: int, used: int, todo: str) -> None:
    from advisor.result import Owned

    own = Owned.model_construct(suffices=True, hosts=hosts, hosts_used=used, usd_per_month=10.0, missing="")
    answer = decided(action="keep", provider="owned")
    assert screen_of(answer.changed(owned=[own])).todo == todo


def test_owned_machines_are_a_row_and_say_why_they_are_not_first() -> None:
    screen = screen_of(stored_answers.answers()["keep"])
    (row,) = [row for row in screen.table.rows if row.what.endswith("already yours")]
    assert row.why == "selling them is worth more"
    assert [fact.text for fact in screen.facts if fact.label == "Your machines"] == [
        "One of your two servers is enough. Selling them costs less only if they bring that price."
    ]


def test_terms_stand_below_the_table() -> None:
    term = TermOffer(
        term="reserved_1y", provider="nebius", label="4 x H200 SXM", saves_fraction=0.28, liability_usd=120_000.0,
        stays_cheapest_probability=0.7, said="",
    )  # fmt: skip
    assert screen_of(decided(terms=[term])).below == ("One-year term at nebius: saves 28%, liability $120,000.",)


def test_a_question_lists_growth_limits_constraints_budget_and_owned_machines() -> None:
    question = screen_of(stored_answers.answers()["grow"]).question
    for part in (
        "Llama-3.3-70B-Instruct", "6 requests/s, peak 18", "growing 50% a year", "first token 1,000 ms", "one spare",
        "only EU", "budget $60,000 a month", "you own 16 × A100 80 GB SXM",
    ):  # fmt: skip
        assert part in question


def test_an_infeasible_answer_says_what_is_in_the_way_and_the_smallest_change() -> None:
    screen = screen_of(stored_answers.answers()["infeasible"])
    assert not screen.feasible and screen.todo.startswith("Nothing meets this: the nearest, ")
    assert {fact.label for fact in screen.facts} == {"In the way", "Smallest change"}
    assert all(row.rank is None for row in screen.table.rows)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("H100 SXM5 80GB", "H100 SXM"), ("A100 SXM4 80GB", "A100-80GB SXM"), ("A100 PCIe 40GB", "A100-40GB PCIe"),
        ("B200 (HGX/DGX)", "B200"), ("Instinct MI300X", "MI300X"), ("GeForce RTX 4090", "RTX 4090"),
        ("GH200 96GB", "GH200-96GB"), ("Jetson AGX Thor 128GB (T5000)", "Jetson AGX Thor"), ("L40S", "L40S"),
        ("V100 SXM2/SXM3 32GB", "V100-32GB SXM"),
    ],
)  # fmt: skip
def test_chips_have_the_names_that_people_say(name: str, short: str) -> None:
    from advisor.report.screen.machines import chip_name

    assert chip_name(name) == short


def test_short_names_tell_the_chips_of_the_catalog_apart() -> None:
    import yaml

    from advisor.report.screen.machines import chip_name
    from tests.conftest import SHIPPED

    names = [yaml.safe_load(file.read_text())["name"] for file in (SHIPPED / "accelerators").glob("*.yaml")]
    assert len({chip_name(name) for name in names}) == len(names) > 100
    assert all(figures(chip_name(name)) <= 2 for name in names)


@pytest.mark.parametrize("action", ["sign", "keep", "do_not_sign", "get_quote", "no_clear_winner"])
@pytest.mark.parametrize("name", KINDS)
def test_every_action_reads_on_every_kind_of_answer(name: str, action: Any) -> None:
    answer = stored_answers.answers()[name]
    if answer.decision is None:
        return
    others = [r.rank for r in answer.recommendations[1:4] if r.rank]
    decision: Decision = answer.decision.changed(action=action, gate=gate(), tied_ranks=others)
    screen = screen_of(answer.changed(decision=decision))
    text = above_the_table(screen)
    assert figures(text) <= 20 and len(text.split()) <= 120, text
    assert ". " not in screen.todo and not SETUP.search(text), text


# --- every line has room ----------------------------------------------------------------------------------------


def wanted(answer: Answer) -> set[str]:
    """The labels of all that is known about the decision."""
    decision, option = answer.decision or answer.decide(), next(iter(answer.recommendations), None)
    if decision is None:
        return set()
    lines = {
        "Cost": facts.cost(decision, option, answer),
        "Your budget": facts.fits(decision, option, answer),
        "Speed": facts.speed(option, decision, answer),
        "Capacity": facts.capacity(option, answer),
        "Your machines": facts.own_machines(answer, decision),
        "Rests on": facts.rests_on(decision, option),
        "Before signing": " ".join(fact.text for fact in facts.before_signing(decision, option, answer)),
    }
    return {label for label, text in lines.items() if text}


def test_what_is_to_be_done_before_signing_stays_when_a_remark_on_pools_has_no_room() -> None:
    long = " ".join(["word"] * 27)
    labels = ("Cost", "Your budget", "Speed (p95)", "Pools", "Before signing")
    given = [Fact(label=label, text=long, brief=long) for label in labels]
    assert [fact.label for fact in shortened(given, "Buy one server.", 20)] == [*labels[:3], "Before signing"]


def test_no_line_of_the_verdict_is_left_out_for_want_of_room(screens: dict[str, Screen]) -> None:
    for name, answer in made().items():
        shown = {fact.label.removesuffix(" (p95)") for fact in screens[name].facts}
        assert wanted(answer) <= shown, (name, wanted(answer) - shown)


@pytest.mark.parametrize("budget_usd", [None, 60_000])
@pytest.mark.parametrize("action", ["sign", "no_clear_winner"])
def test_a_long_plan_with_many_limits_leaves_out_rows_and_parts_before_lines(action: Any, budget_usd: Any) -> None:
    for answer in [Answer.read(sample_plan.result()), *stored_answers.answers().values()]:
        decision, first = answer.decide(), next(iter(answer.recommendations), None)
        if decision is None or not isinstance(first, Option) or first.money is None or first.money.plan is None:
            continue
        bought = plan_step("buy", 11, 36, instances=2, unit_usd_once=430_000.0, order_months_before=10.0)
        steps = [bought, plan_step("rent", 29, 36, instance="2 × B200 (8 GPUs)"), plan_step("reserve", 5, 10)]
        plan = first.money.plan.changed(steps=steps)
        first = first.changed(money=first.money.changed(plan=plan))
        asked = {**answer.workload, "constraints": {"max_usd_per_month": budget_usd}}
        changed = answer.changed(
            workload=asked, recommendations=[first, *answer.recommendations[1:]],
            decision=decision.changed(action=action, tied_ranks=[o.rank for o in answer.recommendations[1:3]]),
        )  # fmt: skip
        screen = screen_of(changed)
        said = above_the_table(screen)
        assert figures(said) <= 20 and len(said.split()) <= 120, said
        assert {"Cost", "Rests on"} <= {fact.label for fact in screen.facts}, said
        assert len(screen.table.rows) >= min(2, len(answer.recommendations)), screen.table


def plan_step(action: str, first: int, last: int, **given: Any) -> Any:
    values = {
        "action": action, "instances": 1, "instance": "hgx", "provider": "x", "region": "any", "term": "purchase",
        "from_month": first, "until_month": last, "paid_until_month": last, "unit_usd_once": None,
        "unit_usd_per_hour": None, "paid_hours": 1.0, "usd": 1000.0, "price_as_of": "2026-11-01",
        "price_source": "x", "said": "", "accelerators": 8,
    }  # fmt: skip
    return PlanStep.read(values | given)


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "of today"), (1, "one day old"), (10, "ten days old"), (11, "two weeks old"), (45, "six weeks old"),
        (66, "nine weeks old"), (67, "two months old"), (315, "ten months old"), (330, "nearly a year old"),
        (365, "over a year old"), (800, "over two years old"),
    ],
)  # fmt: skip
def test_the_age_of_a_price_is_in_words(days: int, text: str) -> None:
    assert facts.age_text(clock.today() - timedelta(days=days)) == text


def test_no_age_has_figures_or_jumps_back() -> None:
    for days in range(0, 3000):
        assert not figures(facts.age_text(clock.today() - timedelta(days=days))), days


@pytest.mark.parametrize(
    ("state", "usd", "said"),
    [
        ("not verified", 1_000.0, True), ("disputed", 1_000.0, True), ("missed", 1_000.0, False),
        ("not verified", 13_000.0, False),
    ],
)  # fmt: skip
def test_a_far_cheaper_api_without_a_published_latency_is_measured_first(state: Any, usd: float, said: bool) -> None:
    answer = Answer.read(sample_plan.result())
    offers = [offer for each in stored_answers.answers().values() for offer in each.hosted]
    offer = offers[0].changed(slo_state=state, usd_per_month=usd, within_budget=True, rejection=None)
    texts = [fact.text for fact in screen_of(answer.changed(hosted=[offer])).facts if fact.label == "Before signing"]
    assert any("hosted API" in text for text in texts) == said, texts


def test_nothing_that_lies_ahead_is_certain() -> None:
    assert facts.foreseen(1.0) == ">\u00a099%" and facts.foreseen(0.94) == "94%"


def test_a_price_is_for_one_unit_or_for_many() -> None:
    for counted, text in ((1, "$ per audio hour"), (1_000, "$ per 1,000 audio hours")):
        option = Option.model_construct(unit_cost=SimpleNamespace(count=counted, unit="audio hour", usd=1.0))
        assert rows.unit_of(option) == text


def test_servers_that_are_sold_are_in_the_sentence_on_what_to_do() -> None:
    screen = screen_of(stored_answers.answers()["keep"])
    assert screen.todo.startswith("Sell your two servers (about $320,625) and ")


@pytest.mark.parametrize(("flips", "said"), [(0.004, False), (0.04, False), (0.2, True)])
def test_a_test_that_hardly_ever_changes_the_choice_is_no_step_before_signing(flips: float, said: bool) -> None:
    settle = Settle.read(
        {
            "kind": "quote",
            "input": "price of 4 x H200 SXM",
            "flips_fraction": flips,
            "winner_after": "4 x MI300X",
            "winner_after_rank": 2,
            "at_ratio": 1.12,
            "said": "Get a written quote for 4 x H200 SXM.",
        }  # fmt: skip
    )
    for given in (None, gate()):
        texts = [fact.text for fact in screen_of(decided(settle=settle, gate=given)).facts]
        assert any("may change the choice" in text for text in texts) == said, texts


def test_an_api_is_measured_only_where_it_may_be_used_and_before_a_commitment() -> None:
    """The sentence names the seller, not the checkpoint, and the test stands once among the steps."""
    answer = stored_answers.answers()["support-chat"]
    decision = answer.decision
    assert decision is not None
    gate = Gate(
        kind="api", metric="p95 TTFT of an API", value=1000.0, unit="ms", better_than_value="Seller API, org/model-fp8",
        worse_than_value="x", test="Send your own prompts", test_usd=0.1, worth_usd_per_month=0.0, worth_usd=0.0,
        sign_today="", said="",
    )  # fmt: skip
    screen = screen_of(answer.changed(decision=decision.changed(action="do_not_sign", gate=gate)))
    assert screen.todo.startswith("Do not sign yet: measure the hosted API of Seller first; ")
    assert screen.todo.endswith(" only if it misses your limits.") and "org/model" not in screen.todo
    over = gate.changed(kind="budget", metric="its expected cost", value=12000.0, unit="USD a month")
    screen = screen_of(answer.changed(decision=decision.changed(action="do_not_sign", gate=over)))
    assert "more than your budget" in screen.todo
    assert any(fact.text.startswith("Raise the budget to $") for fact in screen.facts)


def unpriced(offer: Any) -> Answer:
    from advisor.result import Unranked

    item = Unranked.model_construct(accelerator="trainium2", label="2 x Trainium2, BF16", offer=offer)
    answer = stored_answers.answers()["infeasible"]
    return answer.changed(unranked=[item], near_misses=[], rejected=[], bookable=[])


def test_a_chip_without_a_published_price_that_meets_every_limit_asks_for_a_quote() -> None:
    screen = screen_of(unpriced(None))
    assert screen.todo.startswith("Get a quote for 2 x Trainium2, BF16: it meets every limit in simulation, but no ")
    assert [f.text for f in screen.facts] == ["Enter the quoted price of Trainium2 as your own price and ask again."]


def test_a_chip_that_is_sold_only_on_other_terms_says_which() -> None:
    from advisor.result import UnrankedOffer

    offer = UnrankedOffer.model_construct(provider="aws", term="capacity_block", usd_per_month=4_997.0, booking="")
    assert screen_of(unpriced(offer)).todo.endswith("but aws sells it only in capacity blocks, booked ahead.")


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (None, ""),
        (StepBudget(default_tokens=8192, default_accelerator_count=8), "2,048 tokens instead of 8,192."),
        (StepBudget(default_tokens=8192), "2,048 tokens instead of 8,192."),
        (
            StepBudget(default_tokens=8192, default_accelerator_count=12),
            "2,048 tokens instead of 8,192, which saves 4 accelerators.",
        ),
    ],
)
def test_a_step_budget_is_said_where_it_is_not_the_default(budget: StepBudget | None, said: str) -> None:
    option = Answer.read(sample_advice.result()).deployments[0]
    other = option.changed(max_batched_tokens=2048, accelerator_count=8, step_budget=budget)
    assert facts.step_budget(other) == said
    assert facts.step_budget(other, is_brief=True) == said.split(", which")[0].removesuffix(".") + "." * bool(said)
