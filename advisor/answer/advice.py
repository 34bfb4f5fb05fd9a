"""From a question and a snapshot to the answer: runs the engine and assembles the JSON of `advise`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from advisor.answer import bill
from advisor.answer.calibration_marks import calibrations_used
from advisor.answer.card_sharing import beside
from advisor.answer.mix import mix_json
from advisor.answer.option import answer_json, choice_json
from advisor.answer.portfolio import result
from advisor.answer.unused_inputs import not_used
from advisor.engine.fleet import Member, find_mix
from advisor.engine.search import Catalog, prepare_question, search
from advisor.engine.spec import Workload
from advisor.inputs import COLD_START, COSTS, EGRESS, STORAGE, catalog_of, hosted_apis, unpacked, workload_of
from advisor.workload import PORTFOLIO

Json = dict[str, Any]


# --- the whole road ---------------------------------------------------------------------------------------------


def recommend(spec: Json, taken: Json, progress: Callable[[str, float], None] | None = None) -> Json:
    """Runs the engine on a snapshot; the JSON of `advise`."""
    if spec["kind"] == PORTFOLIO:
        return _portfolio(spec, taken, progress)
    return _answered(spec, taken, progress)


def _portfolio(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> Json:
    """Each workload alone, then all on one fleet."""
    tell, count = progress or (lambda stage, fraction: None), len(spec["workloads"])
    answers, members = [], []

    def inside(i: int, name: str) -> Callable[[str, float], None]:
        return lambda stage, done: tell(f"{name}: {stage}", (i + done) / (count + 1))

    for i, (part, its) in enumerate(zip(spec["workloads"], taken["parts"], strict=True)):
        answer, member = _member(part, its, inside(i, part["name"]))
        answers.append(answer)
        members.append(member)
    tell("sharing one fleet", count / (count + 1))
    used = {c["id"]: c for answer in answers for c in answer["calibrations"]}
    told = {"calibrations": list(used.values()), "calibration_ids": sorted(used)}
    return result(spec, taken, answers, members) | told


def _answered(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> Json:
    """The JSON of `advise` for one workload."""
    taken, workload, catalog = _posed(spec, taken)
    found = search(workload, catalog, progress)
    answer = answer_json(spec, taken, workload, catalog, found) | calibrations_used(taken, found.shown)
    answer |= beside(workload, catalog, found, answer["recommendations"])
    if workload.kind.mixes_accelerators:
        answer["mix"] = mix_json(workload, find_mix(workload, catalog, found))
    return _with_hosted(spec, taken, catalog, answer)


def _member(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> tuple[Json, Member]:
    """One workload of a portfolio: its answer, and the engine values behind it."""
    taken, workload, catalog = _posed(spec, taken)
    found = search(workload, catalog, progress, choice_alone=True)
    answer = choice_json(spec, taken, workload, catalog, found) | calibrations_used(taken, found.ranked)
    member = Member(workload=workload, catalog=catalog, answer=found, week=workload.week)
    return _with_hosted(spec, taken, catalog, answer), member


def _posed(spec: Json, taken: Json) -> tuple[Json, Workload, Catalog]:
    """The snapshot in full, with what the question says of money and growth; the question as the engine computes it."""
    taken = unpacked(taken) | {
        "tco": spec["tco"],
        "growth_fraction_per_year": spec["traffic"]["growth_fraction_per_year"],
    }
    cold_start_s = float(spec["tco"].get(COLD_START, taken["assumptions"].get(COLD_START, {"value": 0.0})["value"]))
    return taken, *prepare_question(replace(workload_of(spec), cold_start_s=cold_start_s), catalog_of(spec, taken))


def _with_hosted(spec: Json, taken: Json, catalog: Catalog, answer: Json) -> Json:
    """The answer with hosted APIs beside it, and the inputs that did not change it."""
    services = {name for name in taken["assumptions"] if name.startswith((EGRESS, STORAGE))}
    bought = hosted_apis.hosted(spec, [] if catalog.model.adapters else taken["hosted"], answer["recommendations"])
    answer["recommendations"] = bill.beside_hosted(answer["recommendations"], bought)
    verdict = hosted_apis.verdict(spec, bought, answer["verdict"], bool(answer["recommendations"]))
    return {**answer, "verdict": verdict, "hosted": bought, "not_used": not_used(spec, COSTS | services)}
