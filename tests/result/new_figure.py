"""Answers a small question and prints everything that shows its options as JSON; runs in a copy of the tree."""

import json
import os
import sys
from pathlib import Path

import django

QUESTION = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2},
    "constraints": {"accelerators": {"allow": ["l4", "a10g"]}, "frameworks": {"allow": ["vllm"]}},
    "variants": "no",
}


def main() -> None:
    sys.path.insert(0, str(Path.cwd()))
    os.environ["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    django.setup()
    from django.core.management import call_command
    from django.test import Client
    from django.test.utils import setup_test_environment

    setup_test_environment()
    from catalog import clock
    from tests.clocks import TODAY

    clock.today = lambda: TODAY
    call_command("load_catalog", Path("tests/frozen_catalog"), verbosity=0, no_scores=True)
    from advisor import report
    from advisor.advise import default_organisation
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.result import reference
    from advisor.workload import parse
    from tests import sample_advice

    spec = parse(QUESTION)
    answer = recommend(spec, take_snapshot(spec, default_organisation()))
    advice = sample_advice.advice(answer.to_json())
    advice.workload.spec = spec
    advice.workload.save()
    pages = {
        "page of an option": f"/advice/{advice.pk}/options/1",
        "ranking": f"/advice/{advice.pk}?sort=warmup",
        "CSV": f"/advice/{advice.pk}/options.csv",
        "comparison": f"/advice/compare?item={advice.pk}:1&item={advice.pk}:2",
        "CSV of a comparison": f"/advice/compare?item={advice.pk}:1&item={advice.pk}:2&format=csv",
        "memo": f"/advice/{advice.pk}/documents/memo.html",
        "memo in Markdown": f"/advice/{advice.pk}/documents/memo.md",
        "result": f"/api/v1/advice/{advice.pk}/result",
        "OpenAPI schema": "/api/schema/?format=json",
    }
    found = {name: Client().get(path).content.decode() for name, path in pages.items()}
    found |= {"table": report.table(answer), "Markdown": report.markdown(answer), "reference": reference.markdown()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
