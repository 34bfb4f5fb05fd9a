"""The one thing that would settle the doubt is the input that changes the first choice most often."""

from dataclasses import replace

import numpy as np
import pytest

from advisor import workload
from advisor.answer import ranking
from advisor.answer.money import NORMAL, VALUES, CostModel, Input, Moved, settle
from advisor.answer.money.settling import _serving as serving_inputs
from advisor.answer.money.settling import leads
from advisor.answer.question import Question
from advisor.engine.search.run import prepare_question, search
from advisor.inputs import Snapshot
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.to_engine import catalog_of, workload_of
from advisor.result import Answer
from advisor.workload.text import set_path
from tests import sample_advice
from tests.engine.catalog_sample import FIXTURES

WORKLOAD = FIXTURES / "workloads" / "support-chat.yaml"
OPTIONS = Answer.read(sample_advice.result()).deployments
STILL = np.ones(VALUES)


def moved(name: str, first: np.ndarray, second: np.ndarray, chip: str = "", way: str = "") -> Moved:
    rest = np.full((len(OPTIONS) - 2, VALUES), 9.0)
    scores = np.vstack([first, second, rest])
    return Moved(input=Input(name=name, chip=chip, way=way), scores=scores, ratios=np.exp(0.2 * NORMAL))


def test_the_input_that_flips_the_winner_most_often_is_named_with_its_break_point() -> None:
    price = moved("price", np.exp(0.2 * NORMAL), 1.2 * STILL, "h200-sxm", "rent")  # flips above 1.2 times
    load = moved("load", np.exp(0.2 * NORMAL), 1.5 * STILL)  # flips above 1.5 times
    found = settle(OPTIONS, 0, [load, price], 0.0)
    assert (found.kind, found.winner_after_rank) == ("quote", 2)
    assert found.input == "price of 4 x H200 SXM at nebius"
    assert found.at_ratio == pytest.approx(1.2, rel=0.01)
    assert found.flips_fraction == pytest.approx(float((np.exp(0.2 * NORMAL) > 1.2).mean()), abs=1e-3)
    assert found.said.startswith("Get a written quote for 4 x H200 SXM at nebius. Above 1.2")


def test_a_faster_rival_is_a_measurement_of_that_rival() -> None:
    rival = moved("performance", STILL, 1.1 / np.exp(0.2 * NORMAL), "mi300x")
    found = settle(OPTIONS, 0, [rival], 0.0)
    assert found.kind == "measurement" and found.said.startswith("Load-test 4 x MI300X. Above 1.1")


def test_a_slower_host_is_a_launch_probe_on_that_machine() -> None:
    slower = moved("host", np.exp(0.2 * NORMAL), 1.2 * STILL, "h200-sxm")
    found = settle(OPTIONS, 0, [slower], 0.0)
    assert found.kind == "measurement"
    assert found.said.startswith(
        "Measure the host of 4 x H200 SXM with a launch probe. Above 1.21 times the assumed host time, "
    )


def test_nothing_is_named_where_no_input_changes_the_choice_by_more_than_the_tie() -> None:
    near = moved("load", 1.005 * STILL, STILL)
    found = settle(OPTIONS, 0, [near], 0.01)
    assert (found.kind, found.flips_fraction, found.input) == ("none", 0.0, "")


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_the_host_is_among_the_inputs_until_it_is_measured() -> None:
    raw = set_path(workload.load(WORKLOAD.read_bytes()), "constraints.accelerators.allow", "[h200-sxm, b200, mi300x]")
    spec = workload.parse(set_path(raw, "variants", "no"))
    snapshot = take_snapshot(spec)
    catalog = catalog_of(spec, snapshot)
    question = prepare_question(Question(workload_of(spec), catalog, spec=spec, snapshot=snapshot))
    outcome = search(question)

    def hosts(known: Snapshot) -> set[tuple[str, str]]:
        asked = replace(question, snapshot=known)
        costs = CostModel(asked, outcome.shown)
        spreads = [ranking.spread_of(asked, s) for s in outcome.shown]
        inputs = [
            m.input
            for m in serving_inputs(asked.workload, outcome, costs, spreads, [o for o in costs.options() if o], None)
        ]
        return {(i.name, i.chip) for i in inputs if i.name.startswith("host")}

    rest = {("host", "b200"), ("host time", "mi300x")}  # launch probes compare CUDA only
    assert hosts(snapshot) == {("host", "h200-sxm"), *rest}
    probed = snapshot.calibrations["accelerator:h200-sxm"] | {"host_factor": 1.2}
    calibrations = {**snapshot.calibrations, "accelerator:h200-sxm": probed}
    assert hosts(replace(snapshot, calibrations=calibrations)) == rest


@pytest.mark.parametrize(("rival", "first"), [(0.995, True), (0.9, False), (1.3, True)])
def test_what_is_first_for_another_reason_than_its_cost_is_settled_by_no_single_figure(
    rival: float, first: bool
) -> None:
    """Owned machines that stay first before something cheaper: "above 1 times the estimate" would say nothing."""
    load = moved("load", np.exp(0.2 * NORMAL), rival * np.exp(0.2 * NORMAL))
    assert leads([load], 0, 0.01) is first
