"""Imported models and calibrations of one organization: no other one sees them, or answers with them."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import inputs, workload
from advisor.api import tokens
from advisor.inputs import from_catalog
from catalog import owned_models
from catalog.management.errors import BadInput
from catalog.models import AuditEvent, Calibration, Organisation, ServedModel, default_organisation
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
CONFIG = """{"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
 "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
 "tie_word_embeddings": true, "model_type": "llama", "torch_dtype": "bfloat16", "max_position_embeddings": 8192}"""
NAME, SLUG = "secret/Tungsten-1B", "secret-tungsten-1b"


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


def browser(name: str, role: str, owner: Organisation | None = None) -> Client:
    client = Client()
    client.force_login(member(name, role, owner))
    return client


def imported(client: Client, name: str = NAME) -> ServedModel | None:
    client.post("/catalog/models/import", {"config": CONFIG, "name": name, "keep": "1", "confirm_size": "on"})
    found: ServedModel | None = ServedModel.objects.of_everyone().filter(hf_id=name).order_by("-pk").first()
    return found


def seen(client: Client) -> list[bool]:
    """Whether the list, its file, REST, the detail page and the form name the model."""
    pages = ("/catalog/models", "/catalog/models?format=csv", "/api/v1/models?limit=1000", f"/catalog/models/{SLUG}",
             f"/api/v1/models/{SLUG}", "/")  # fmt: skip
    return [NAME in client.get(page).content.decode() for page in pages]


def test_a_planner_imports_for_the_organization_alone(acme: Organisation) -> None:
    planner, viewer, others = browser("ada", "planner", acme), browser("vera", "viewer", acme), browser("eve", "admin")
    row = imported(planner)
    assert row is not None and row.organisation == acme and AuditEvent.objects.get(action="model").organisation == acme
    assert imported(viewer, "secret/Other") is None
    for _ in range(2):  # the second time from what is kept
        assert seen(planner) == seen(viewer) == [True] * 6
        assert seen(others) == seen(Client()) == [False] * 6
    assert others.post(f"/catalog/models/{SLUG}/delete").status_code == 404
    assert others.delete(f"/api/v1/models/{SLUG}").status_code == 404
    assert others.post(f"/catalog/models/{SLUG}/share").status_code == 404
    assert planner.post(f"/catalog/models/{SLUG}/share").status_code == 403
    assert planner.delete(f"/api/v1/models/{SLUG}").status_code == 403
    admin = browser("boss", "admin", acme)
    assert admin.delete(f"/api/v1/models/{SLUG}").status_code == 204
    assert not ServedModel.objects.of_everyone().filter(hf_id=NAME).exists()


@pytest.mark.usefixtures("frozen")
def test_two_organizations_have_models_of_one_name_and_each_answers_with_its_own(acme: Organisation) -> None:
    theirs = organisation("theirs")
    for owner, layers in ((acme, 16), (theirs, 8)):
        text = CONFIG.replace('"num_hidden_layers": 16', f'"num_hidden_layers": {layers}')
        call_import(owner, text)
    rows = {owner: from_catalog.model_row(NAME, owner)["shape"]["blocks"][0]["count"] for owner in (acme, theirs)}
    assert rows == {acme: 16, theirs: 8}
    with pytest.raises(ServedModel.DoesNotExist):
        from_catalog.model_row(NAME, default_organisation())
    assert inputs.catalog_resources([NAME]).models == {}
    assert list(inputs.catalog_resources([NAME], acme).models) == [NAME]


def call_import(owner: Organisation, text: str = CONFIG) -> None:
    from catalog.importers.models import hf

    row = hf.model_row(hf.parsed(text, "config.json"), NAME, "a test", None)
    owned_models.add(row, owner, "ada")


@pytest.mark.usefixtures("frozen")
def test_a_question_about_a_model_of_another_organization_does_not_know_it(acme: Organisation) -> None:
    call_import(acme)
    raw = {"model": "tungsten-1b", "traffic": {"requests_per_s": 1, "input_tokens": 100, "output_tokens": 10}}
    spec = workload.parse(raw)
    named = inputs.with_catalog_names(spec, acme)
    assert named["model"] == NAME
    inputs.check_catalog(named, acme)
    assert inputs.take_snapshot(named, acme).model["hf_id"] == NAME
    for other in (None, default_organisation()):
        assert inputs.with_catalog_names(spec, other)["model"] == "tungsten-1b"
        with pytest.raises(workload.WorkloadError) as refused:
            inputs.check_catalog({**spec, "model": NAME}, other)
        (error,) = refused.value.errors
        assert error["field"] == "model" and NAME not in error["allowed"]
    body = {"model": NAME, "accelerator": "h200-sxm", "weights": "bf16", "isl": 100, "osl": 10, "concurrency": 1}
    for owner, status in ((acme, 200), (default_organisation(), 422)):
        bearer = {"Authorization": f"Bearer {tokens.make('t', 'submit', organisation=owner)[0]}"}
        answer = Client().post("/api/v1/estimate", body, "application/json", headers=bearer)
        assert answer.status_code == status, answer.content


def test_maintainers_share_a_model_of_the_default_organization(acme: Organisation) -> None:
    keeper, theirs = browser("eve", "operator"), browser("ada", "admin", acme)
    row = imported(keeper)
    assert row is not None and row.organisation == default_organisation() and seen(theirs) == [False] * 6
    assert keeper.post(f"/catalog/models/{SLUG}/share").status_code == 302
    assert seen(theirs) == [True] * 6
    assert imported(theirs) == ServedModel.objects.get(hf_id=NAME)  # the name is taken now
    assert theirs.delete(f"/api/v1/models/{SLUG}").status_code == 403


def test_a_list_that_is_kept_for_members_is_not_shown_to_visitors() -> None:
    """Visitors of an open installation ask for the default organization, but do not see its own models in lists."""
    keeper = browser("eve", "operator")
    imported(keeper)
    for page in ("/api/v1/models?limit=1000", "/catalog/models", "/catalog/models?format=csv"):
        assert NAME in keeper.get(page).content.decode()
        assert NAME not in Client().get(page).content.decode()


def test_alone_an_imported_model_is_everybodys(client: Client) -> None:
    row = imported(client)
    assert row is not None and row.organisation is None


def test_the_command_adds_a_model_for_one_organization(acme: Organisation, tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    given = [str(tmp_path / "config.json"), "--slug", "secret-1b", "--confirm-size"]
    call_command("import_model", *given, "--organization", "acme")
    assert ServedModel.objects.of_everyone().get(slug="secret-1b").organisation == acme
    with pytest.raises(BadInput, match="choose one of acme, default"):
        call_command("import_model", *given, "--organization", "none")


# --- calibrations -----------------------------------------------------------------------------------------------


def test_own_figures_are_laid_over_the_newest_shared_ones(acme: Organisation) -> None:
    def row(owner: Organisation | None, **values: float) -> Calibration:
        return Calibration.objects.create(
            organisation=owner, name="accelerator:x", values=values, basis="relative", fitted_on="probe result 1",
            engine_version="1", as_of="2026-01-01", measured=list(values) if owner else [],
        )  # fmt: skip

    row(None, memory_fraction=0.8, power_fraction=0.5)
    row(acme, memory_fraction=0.9)
    row(None, memory_fraction=0.7, power_fraction=0.6)  # a newer file
    kept = {
        owner: {k: v for k, v in inputs.calibrations(owner)["accelerator:x"].items() if k.endswith("_fraction")}
        for owner in (None, acme, organisation("theirs"))
    }
    assert kept[acme] == {"memory_fraction": 0.9, "power_fraction": 0.6}
    assert all(kept[owner] == {"memory_fraction": 0.7, "power_fraction": 0.6} for owner in kept if owner != acme)
