"""What feeds list and the catalog lacks, weighed by use: tokens, then providers; offers of instances and chips."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from catalog.details import freshness
from catalog.importers.prices import Account, hosted, openrouter
from catalog.importers.prices.hosted import is_closed, undated

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
KNOWN = "meta-llama/Llama-3.3-70B-Instruct"
PRICE = {"input_cost_per_token": 1e-7, "output_cost_per_token": 3e-7, "mode": "chat"}
LITELLM = {
    f"{seller}/{name}": {**PRICE, "litellm_provider": seller}
    for seller, names in {
        "nebius": ["acme/Acme-9B", "acme/Acme-70B-0731", KNOWN], "novita": ["acme/acme-9b"],
        "together_ai": ["acme/Acme-9B"], "openai": ["gpt-9"], "anthropic": ["claude-9"],
    }.items()
    for name in names
}  # fmt: skip
RANKINGS = [
    {"model_permaslug": name, "total_prompt_tokens": tokens, "total_completion_tokens": 10**9}
    for name, tokens in (
        ("acme/acme-70b-20260731", 6 * 10**9), ("openai/gpt-9-20260731", 10**15), (f"{KNOWN.lower()}-20260731", 10**15),
        ("acme/broken", None),
    )
]  # fmt: skip


def read(tmp_path: Any, source: str, document: Any) -> None:
    (tmp_path / "feed.json").write_text(json.dumps(document))
    call_command("prices", "sync", "--from", source, "--file", tmp_path / "feed.json", "--as-of", "2026-11-20")


def lacking() -> list[tuple[str, int, int]]:
    return [(m["name"].lower(), m["tokens"], m["providers"]) for m in freshness.found()["lacking_models"]]


def test_models_come_by_tokens_then_by_providers_without_closed_and_known_ones(
    tmp_path: Any, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    read(tmp_path, "litellm", LITELLM)
    assert lacking() == [("acme-9b", 0, 3), ("acme-70b", 0, 1)]
    read(tmp_path, "openrouter-rankings", RANKINGS)
    assert lacking() == [("acme-70b", 7_000_000_000, 1), ("acme-9b", 0, 3)]
    capsys.readouterr()
    call_command("status", format="json")
    assert json.loads(capsys.readouterr().out) == client.get("/api/v1/freshness").json()
    call_command("status")
    assert "model acme-70b: 7 billion tokens on OpenRouter, 1 provider\n" in capsys.readouterr().out
    assert "Acme-9B" in client.get("/catalog/freshness").content.decode()


def test_instances_and_chips_come_by_the_number_of_their_offers() -> None:
    account = Account()
    for name in ("small", "large", "large"):
        account.lacking(name, "new")
    read = {"azure": {"proposed": account.proposed, "listed": account.listed}}
    assert [(row["name"], row["offers"]) for row in freshness.lacking_offers(read)] == [("large", 2), ("small", 1)]


def test_what_the_catalog_has_by_now_is_no_longer_lacking() -> None:
    model = {"key": "llama", "name": KNOWN.split("/")[1], "hf_id": "", "providers": ["x"], "tokens": 5}
    assert freshness.lacking_models({"litellm": {"models": [model]}}) == []


@pytest.mark.parametrize(
    ("name", "plain", "closed"),
    [
        ("deepseek-v4-flash-20260731", "deepseek-v4-flash", False), ("acme-flash-0731", "acme-flash", False),
        ("qwen3-32b-04-28", "qwen3-32b", False), ("qwen3-235b-a22b-2507", "qwen3-235b-a22b-2507", False),
        ("mistral-large-2512", "mistral-large-2512", False), ("gpt-5.6-luna-20260709", "gpt-5.6-luna", True),
        ("gpt-oss-120b", "gpt-oss-120b", False), ("anthropic.claude-9", "anthropic.claude-9", True),
        ("kimi-latest", "kimi-latest", True), ("gpt-j-6b", "gpt-j-6b", False),
        ("openrouter/auto", "openrouter/auto", True),
    ],
)  # fmt: skip
def test_names_lose_the_date_of_a_release_and_closed_families_are_known(name: str, plain: str, closed: bool) -> None:
    assert (undated(name), is_closed(name)) == (plain, closed)


def test_a_broken_ranking_is_counted_and_makes_no_offer() -> None:
    account = Account()
    assert list(openrouter.usage(json.dumps(RANKINGS), hosted.models([]), account)) == []
    assert account.skipped == {"usage of a model, no price": 3, "unreadable ranking": 1}
