"""Answers of every kind as a worker stores them, for tests that look at what people see first.

tests/databases/answers.json.xz holds for each name its workload and its answer, without the parts that no first screen
shows. `python -m tests.stored_answers NAME=WORKLOAD.yaml ...` computes these answers anew and keeps the others.
"""

import json
import lzma
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.result import Answer

FILE = Path(__file__).parent / "databases" / "answers.json.xz"
DROPPED = ("pareto", "assumptions", "left_out", "unranked", "sensitivity", "scenarios", "calibrations")
DROPPED_OF_OPTIONS = ("tuning", "variants", "step", "scores", "beats", "week", "evidence", "optimization")
Json = dict[str, Any]


@lru_cache(maxsize=1)
def stored() -> dict[str, Json]:
    """Name to {spec, answer}."""
    found: dict[str, Json] = json.loads(lzma.decompress(FILE.read_bytes()))
    return found


@lru_cache(maxsize=1)
def answers() -> dict[str, Answer]:
    return {name: Answer.read(each["answer"]) for name, each in stored().items()}


def advice(name: str) -> Any:
    """An advice with this answer."""
    from tests.same_answers import finished

    return finished(stored()[name]["spec"], stored()[name]["answer"])


def slim(answer: Json) -> Json:
    """Without what only the sections below the first screen show."""
    kept = {key: value for key, value in answer.items() if key not in DROPPED}
    kept["rejected"] = [each | {"detail": each["detail"][:300]} for each in answer.get("rejected", [])]
    for key in ("recommendations", "near_misses"):
        kept[key] = [slim_option(option) for option in answer.get(key, [])]
    return kept


def slim_option(option: Json) -> Json:
    kept = {key: value for key, value in option.items() if key not in DROPPED_OF_OPTIONS}
    if kept.get("launch"):
        kept["launch"] = kept["launch"] | {"files": {}}
    if kept.get("money"):
        kept["money"] = kept["money"] | {"cash_flow": kept["money"]["cash_flow"][:1] + kept["money"]["cash_flow"][-1:]}
    return kept


def store(found: dict[str, Json]) -> None:
    text = json.dumps(found, sort_keys=True, ensure_ascii=False)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))


def main(arguments: list[str]) -> None:
    from tests.same_answers import load, setup

    setup()
    load()
    from advisor.advise import default_organisation
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.management.commands.advise import question

    found = stored() if FILE.exists() else {}
    for name, _, file in (each.partition("=") for each in arguments):
        spec = question(Path(file), [], None)
        answer = recommend(spec, take_snapshot(spec, default_organisation())).to_json()
        found[name] = {"spec": spec, "answer": slim(answer)}
        print(name)
    store(found)


if __name__ == "__main__":
    main(sys.argv[1:])
