"""Everything of one organization is exported and deleted: every table that leads to one, also a new one."""

import io
import json
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import ForeignKey
from django.test import Client
from django.utils import timezone

from advisor import deletion
from advisor.models import Advice, ApiToken, Comment, LoadTest, Option, Share, Study, StudyPiece, StudyRows, Workload
from catalog.accounts import everything, retention
from catalog.management.errors import BadInput
from catalog.models import (
    AuditEvent,
    Calibration,
    Discount,
    HeldPrice,
    Identity,
    Membership,
    Organisation,
    Price,
    PriceImport,
    Quota,
    Retention,
    SavedView,
    ServedModel,
    ServiceAccount,
    SupportLicence,
    Usage,
    default_organisation,
)  # fmt: skip
from probes.models import Agent, Enrolment, Job, Lease, Measurement, Result
from tests import sample_advice
from tests.accounts.test_other_organizations import states
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
SECRET_VALUE = "c0ffee" * 8
# Tables without rows of an organization. A new table is one of an organization, or it is listed here.
OF_NOBODY = set(
    """accelerator historicalaccelerator smallestunit pricesource pricerefresh exchangerate pricelevel instancetype
    apiprovider historicalapiprovider framework historicalframework quantizationmethod historicalquantizationmethod
    region historicalregion unit historicalunit benchmark assumption historicalassumption catalogbundle catalogload
    scorecard scoredrow identity duty tally evidenceimport evidencerow heldevidence
    availability""".split()
)


def value_for(field: Any, owner: Organisation, made: dict[Any, Any]) -> Any:
    """A value for a column that has no default, by its type."""
    if isinstance(field, ForeignKey):
        return made[field.related_model]
    kind = field.get_internal_type()
    if field.choices:
        return field.choices[0][0]
    day, now = timezone.now().date(), timezone.now()
    values = {
        "DateField": day, "DateTimeField": now + timedelta(days=9), "JSONField": {}, "FloatField": 0.5,
        "DecimalField": 1, "IntegerField": 1, "PositiveIntegerField": 1, "BigIntegerField": 1,
        "EmailField": "a@b.example",
    }  # fmt: skip
    return values.get(kind, f"{owner.slug}{SECRET_VALUE}"[: field.max_length or 60])


SPECIAL: dict[Any, dict[str, Any]] = {
    Advice: {"state": "queued"}, Job: {"state": "queued"}, Result: {"state": "accepted"},
    Price: {"usd_per_hour": 1}, Retention: {"keep_advice_days": 1},
    StudyPiece: {"part": b"made for workers"},
}  # fmt: skip


def one_of_everything(owner: Organisation) -> dict[Any, Any]:
    """A row in every table that leads to the organization, made from the columns alone."""
    user = member(f"user-{owner.slug}", "admin", owner)
    made: dict[Any, Any] = {Organisation: owner, User: user, Membership: Membership.objects.get(user=user)}
    for model in apps.get_app_config("catalog").get_models():
        if model.__name__ == "Accelerator":
            made[model] = model.objects.get_or_create(  # type: ignore[attr-defined]
                slug="x", defaults={"as_of": "2026-01-01", "memory_gib": 1, "memory_gb_per_s": 1}
            )[0]
    for model in reversed(everything.children_first()):
        if model in made or hasattr(model, "history_type"):  # histories are written with their rows
            continue
        values = {}
        for field in model._meta.concrete_fields:
            direct = isinstance(field, ForeignKey) and field.related_model in made
            bare = not field.has_default() and not field.null and not field.blank and not field.primary_key
            if (direct or bare) and not (field.primary_key and field.has_default()) and field.name != "history_user":
                values[field.name] = value_for(field, owner, made)
        made[model] = model._base_manager.create(**values | SPECIAL.get(model, {}))
    return made


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


def test_a_table_leads_to_an_organization_or_is_known_to_lead_to_none() -> None:
    """Fails where a new table holds rows of an organization without a foreign key to it."""
    for app in everything.APPS:
        for model in apps.get_app_config(app).get_models():
            name = str(model._meta.model_name)
            assert (model in everything.owners()) != (name in OF_NOBODY or model is Organisation), name
    expected = {
        Advice, ApiToken, Comment, LoadTest, Option, Share, Workload, AuditEvent, Calibration, Discount, HeldPrice,
        Membership, Price, PriceImport, Quota, Retention, SavedView, ServedModel, ServiceAccount, SupportLicence, Usage,
        Agent, Enrolment, Job, Lease, Measurement, Result, Study, StudyPiece, StudyRows,
    }  # fmt: skip
    assert expected <= everything.owners().keys()


def test_an_export_has_a_row_of_every_table_and_no_secret(acme: Organisation) -> None:
    one_of_everything(acme)
    one_of_everything(organisation("theirs"))
    out = io.BytesIO()
    written = everything.export(acme, out, "ada")
    with zipfile.ZipFile(out) as archive:
        files = {name: json.loads(archive.read(name)) for name in archive.namelist()}
        text = " ".join(archive.read(name).decode() for name in archive.namelist())
    assert files["manifest.json"]["rows"] == written and files["manifest.json"]["organization"]["slug"] == "acme"
    for model in everything.children_first():
        rows = files[f"{model._meta.label_lower.replace('.', '-')}.json"]
        assert len(rows) >= 1, model
    assert [each["username"] for each in files["accounts.json"]] == ["user-acme"]
    assert "theirs" not in text and "password" not in text
    for model in everything.children_first():
        for name in {f.name for f in model._meta.concrete_fields if "hash" in f.name or "salt" in f.name}:
            if "token" in name or "salt" in name:
                assert name not in files[f"{model._meta.label_lower.replace('.', '-')}.json"][0], name
    assert AuditEvent.objects.filter(organisation=acme, action="export", who="ada").exists()


def test_deletion_removes_every_row_and_nothing_of_another_organization(acme: Organisation) -> None:
    theirs = organisation("theirs")
    one_of_everything(acme)
    made = one_of_everything(theirs)
    both = User.objects.get(username="user-theirs")
    Membership.objects.create(user=both, organisation=acme, role="viewer")
    Identity.objects.create(user=User.objects.get(username="user-acme"), issuer="i", subject="s")
    kept = {model: everything.rows_of(model, theirs).count() for model in everything.children_first()}
    deleted = everything.delete(acme, "root")
    assert not Organisation.objects.filter(slug="acme").exists() and deleted["accounts"] == 1
    assert User.objects.get() == both and not Identity.objects.exists()
    for model in everything.children_first():
        assert everything.rows_of(model, theirs).count() == kept[model], model
        assert (
            not model._base_manager.exclude(pk__in=everything.rows_of(model, theirs))
            .filter(**{f"{everything.owners()[model]}__isnull": False})
            .exclude(**{everything.owners()[model]: default_organisation()})
            .exists()
        ), model
    event = AuditEvent.objects.get(organisation=default_organisation())
    assert (event.who, event.what) == ("root", "organization: acme") and "rows" in event.detail
    assert made[Advice].pk == Advice.objects.get().pk


def test_the_command_shows_what_goes_and_asks_for_the_name(acme: Organisation, capsys: Any, tmp_path: Any) -> None:
    one_of_everything(acme)
    before = states()
    with pytest.raises(BadInput, match="nothing was deleted; to delete these rows, give --confirm acme"):
        call_command("organization", "delete", "acme")
    assert states() == before and "1 advices" in capsys.readouterr().out
    call_command("organization", "export", "acme", str(tmp_path / "acme.zip"))
    assert zipfile.is_zipfile(tmp_path / "acme.zip")
    call_command("organization", "delete", "acme", "--confirm", "acme")
    assert "rows deleted" in capsys.readouterr().out and not Organisation.objects.filter(slug="acme").exists()
    member("ada", "viewer")
    call_command("organization", "delete", "default", "--confirm", "default")
    assert default_organisation() and not Membership.objects.exists()


def test_admins_export_and_delete_on_the_page_and_by_rest(acme: Organisation) -> None:
    sample_advice.advice()
    Advice.objects.update(organisation=acme)
    Workload.objects.update(organisation=acme)
    admin, operator = Client(), Client()
    admin.force_login(member("ada", "admin", acme))
    operator.force_login(member("o", "operator", acme))
    for call in ("/organization/export", "/api/v1/organization/export"):
        assert operator.post(call).status_code == 403
        answer = admin.post(call)
        archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
        assert len(json.loads(archive.read("advisor-advice.json"))) == 1
    page = admin.get("/organization").content.decode()
    assert "Type acme to confirm" in page and "<td>1</td>" in page
    assert operator.delete("/api/v1/organization?confirm=acme").status_code == 403
    assert admin.delete("/api/v1/organization").status_code == 422
    assert "type acme" in admin.post("/organization/delete", {"confirm": "Acme"}, follow=True).content.decode()
    assert Organisation.objects.filter(slug="acme").exists()
    assert admin.post("/organization/delete", {"confirm": "acme"}).status_code == 302
    assert not Organisation.objects.filter(slug="acme").exists() and not User.objects.exists()


def test_the_default_organization_is_not_deleted_over_the_web() -> None:
    admin = Client()
    admin.force_login(member("ada", "admin"))
    assert admin.delete("/api/v1/organization?confirm=default").status_code == 409
    assert (
        "cannot be deleted" in admin.post("/organization/delete", {"confirm": "default"}, follow=True).content.decode()
    )
    assert User.objects.exists()


# --- retention --------------------------------------------------------------------------------------------------


def test_days_of_an_organization_override_the_setting(acme: Organisation, settings: Any, capsys: Any) -> None:
    theirs = organisation("theirs")
    for owner in (acme, theirs):
        for age in (5, 40):
            advice = sample_advice.advice()
            then = timezone.now() - timedelta(days=age)
            Advice.objects.filter(pk=advice.pk).update(organisation=owner, finished_at=then)

    def left() -> list[int]:
        deletion.delete_expired()
        return [Advice.objects.filter(organisation=owner).count() for owner in (acme, theirs)]

    settings.KEEP_ADVICE_DAYS = None
    assert left() == [2, 2]
    call_command("organization", "keep", "acme", "--keep-advice-days", "30")
    call_command("retention", "--dry-run")
    assert "answers: 1 older than the days that 1 organization set" in capsys.readouterr().out
    assert left() == [1, 2]
    settings.KEEP_ADVICE_DAYS = 1
    assert left() == [1, 0]  # the own days are longer than the setting
    with pytest.raises(BadInput, match="from 1 to"):
        call_command("organization", "keep", "acme", "--keep-advice-days", "0")


def test_every_rule_for_rows_of_organizations_can_be_set_by_one() -> None:
    columns = {rule.column for rule in deletion.RULES if rule.owner}
    assert columns == set(retention.NAMES) == {f.name for f in Retention._meta.fields if f.name.startswith("keep_")}


def test_admins_set_retention_on_the_page_and_by_rest(acme: Organisation) -> None:
    admin = Client()
    admin.force_login(member("ada", "admin", acme))
    assert admin.post("/organization", {"keep_shares_days": "7"}).status_code == 302
    assert admin.post("/organization", {"keep_shares_days": "0"}).status_code == 422
    body = {"retention": {"keep_advice_days": 30}}
    changed = admin.patch("/api/v1/organization", body, "application/json").json()["retention"]
    assert (changed["keep_advice_days"], changed["keep_shares_days"]) == (30, 7)
    for wrong in ({"retention": {"keep_advice_days": 0}}, {"retention": {"days": 1}}, {"days": 1}):
        assert admin.patch("/api/v1/organization", wrong, "application/json").status_code == 400
    assert Retention.objects.get().keep_advice_days == 30
