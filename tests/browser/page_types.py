"""One page of every type, for tests that look at all of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from advisor.models import Advice
from advisor.web.answers.sections import Section
from catalog.models import Organisation, SavedView
from tests import old_databases, sample_advice
from tests.conftest import SHIPPED, load_once

CATALOG = {
    "list-of-accelerators": "/catalog/accelerators?rows=8&vendor=nvidia",
    "list-of-prices": "/catalog/prices?rows=8&accelerator=h100&currency=EUR&term=spot",
    "list-of-hosted-apis": "/catalog/api-prices?rows=8",
    "list-of-models": "/catalog/models?rows=8",
    "accelerator": "/catalog/accelerators/l4",
    "model": "/catalog/models/meta-llama-llama-3-1-8b",
    "framework": "/catalog/frameworks/vllm/0.24.0",
    "price-index": "/catalog/prices/index",
    "price-index-of-a-chip": "/catalog/prices/index/l4",
    "compare": "/catalog/compare?a=h100-sxm&a=mi300x&a=l4&a=b200",
    "saved-views": f"/catalog/views?list=prices&query={quote('term=spot')}",
    "add-a-price": "/catalog/prices/new?accelerator=l4&term=spot",
    "upload-prices": "/catalog/prices/upload",
    "own-prices": "/catalog/prices/own",
    "import-a-model": "/catalog/models/import",
}
OTHERS = {
    "ask": "/?preset=support-chat",
    "advice-list": "/advice",
    "workers": "/workers",
    "enroll": "/workers/enrol",
    "results": "/workers/results",
    "calibrations": "/workers/calibrations",
    "compare-results": "/workers/compare",
    "accuracy": "/fidelity",
    "price-updates": "/catalog/prices/updates",
    "answers-and-newer-data": "/advice/freshness",
    "catalog-freshness": "/catalog/freshness",
    "tokens": "/tokens",
    "sign-in": "/login",
    "password-reset": "/password/reset",
    "audit": "/audit",
    "api-docs": "/api/docs/",
}


def make_rows() -> Advice:
    """The shipped catalog, a saved view and an answer."""
    load_once(SHIPPED)
    owner = Organisation.objects.get(slug="default")
    SavedView.objects.create(organisation=owner, list_name="prices", name="Spot", query="term=spot")
    return sample_advice.advice()


def whole_answer(name: str, folder: Path) -> Advice:
    """A whole answer as an earlier version stored it: a search of the catalog takes too long for a test."""
    (file,) = [file for file in old_databases.FILES if file.name == "0.1.0.sqlite3.xz"]
    answer = old_databases.stored(old_databases.decompress(file, folder))[name]
    return sample_advice.advice(answer, result_version=1)


def of_sections(advice: Advice, of_answer: Sequence[Section], of_option: Sequence[Section]) -> Iterator[str]:
    """The address of each section of an answer and of its first option."""
    for path, parts in ((f"/advice/{advice.pk}", of_answer), (f"/advice/{advice.pk}/options/1", of_option)):
        for part in parts:
            yield f"{path}?section={part.slug}"


def of_advice(advice: Advice) -> dict[str, str]:
    return {
        "advice": f"/advice/{advice.pk}",
        "option": f"/advice/{advice.pk}/options/1",
        "ranking": f"/advice/{advice.pk}?section=alternatives",
        "compare-options": f"/advice/compare?item={advice.pk}:1&item={advice.pk}:3",
    }


def violations(page: Page, *, only_colors: bool = False, within: str | None = None) -> Iterator[str]:
    """What axe finds on a page, best-practice rules included: the rule and where it is broken."""
    options = {"resultTypes": ["violations"]} | ({"runOnly": ["cat.color"]} if only_colors else {})
    for each in Axe().run(page, context=within, options=options).response["violations"]:
        for node in each["nodes"]:
            yield f"{each['id']} at {' '.join(map(str, node['target']))}: {node['html'][:160]}"
