"""The page that compares a running deployment with an option says what REST says, and stores nothing."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.html import escape

from advisor.deployments import parts
from tests import sample_advice
from tests.deployments.test_compared import manifest

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def option() -> Any:
    return sample_advice.advice().options.first()


def shown(option: Any, *files: tuple[str, bytes], **form: str) -> Any:
    uploads = [SimpleUploadedFile(name, content) for name, content in files]
    return Client().post(f"/advice/{option.advice_id}/options/{option.rank}/running", {"files": uploads, **form})


def test_the_page_says_what_rest_says(option: Any) -> None:
    script = manifest(option.detail, max_num_seqs="2").encode()
    scrape = (SAMPLES / "vllm-new.prom").read_bytes().replace(b'model_name="llama-8b"', b'model_name="served"')
    for files in ([("run.sh", script)], [("m.prom", scrape)]):
        page = shown(option, *files, window_s="360", accelerator="h100-sxm")
        body = {
            "files": [{"name": name, "text": content.decode()} for name, content in files], "window_s": 360,
            "advice": str(option.advice_id), "option": option.rank, "accelerator": "h100-sxm",
        }  # fmt: skip
        call = Client().post("/api/v1/deployments/compare", body, content_type="application/json")
        assert (page.status_code, call.status_code) == (200, 200), call.content
        text = page.content.decode()
        for d in call.json()["deployments"]:
            said = [*d["answer"], *d["next"], *d["notes"], *(cell for p in parts(d) for row in p.rows for cell in row)]
            assert said and [each for each in said if escape(each) not in text] == []
    assert "does not run as planned" in shown(option, ("run.sh", script)).content.decode()


def test_text_may_be_pasted_and_the_option_links_here(option: Any) -> None:
    page = shown(option, text=manifest(option.detail))
    assert "It runs as planned, as far as the files say." in page.content.decode()
    address = f"/advice/{option.advice_id}/options/{option.rank}"
    assert f"{address}/running" in Client().get(f"{address}?section=run").content.decode()
    empty = Client().get(f"{address}/running").content.decode()
    assert "multiple" in empty and "<script" not in empty.split("<main", 1)[1].split("</main", 1)[0]


@pytest.mark.parametrize(("files", "form", "says"), [
    ([], {}, "No file was given"), ([("a.bin", b"\xff\x00")], {}, "a.bin cannot be read as text: not UTF-8"),
    ([("a.txt", b"hello")], {}, "a.txt is none of these"),
    ([("a.sh", b"vllm serve a/b")], {"window_s": "0"}, "window_s"),
    ([("big", b"x" * (4 * 2**20 + 1))], {}, "big is larger than 4 MiB"),
])  # fmt: skip
def test_what_cannot_be_compared_is_said_on_the_page(option: Any, files: Any, form: Any, says: str) -> None:
    page = shown(option, *files, **form)
    assert page.status_code == 422 and says in page.content.decode()


def test_another_organization_sees_no_page(option: Any) -> None:
    from catalog.models import Organisation

    other = Organisation.objects.create(slug="other", name="Other")
    type(option.advice).objects.filter(pk=option.advice_id).update(organisation=other)
    assert shown(option, text="vllm serve a/b").status_code == 404
