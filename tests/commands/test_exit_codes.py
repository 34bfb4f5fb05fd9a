"""Every command exits with 2 on input that it cannot use, and with 1 on a failure that other input would not avoid."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import execute_from_command_line, get_commands
from kombu.exceptions import OperationalError

from catalog.models import CatalogLoad
from probes.models import Agent
from tests import sample_advice
from tests.laboratory.measurements import MeasurementsError, read

pytestmark = pytest.mark.django_db
ESTIMATE = ["--accelerator", "h200-sxm", "--weights", "fp8", "--isl", "1"]
NOWHERE = "{tmp}/nowhere/file.csv"
BAD = [
    ("advise", [NOWHERE], "check the path"),
    ("actuals", ["--bill", NOWHERE], "bill: cannot be read: No such file"),
    ("actuals", ["--bill", NOWHERE, "--advice", "999"], "no such finished answer"),
    ("actuals", ["--bill", NOWHERE, "--answer", NOWHERE], "no such answer"),
    ("actuals", ["--bill", NOWHERE, "--advice", "9", "--workload", NOWHERE], "give one forecast alone"),
    ("advise", ["{tmp}", "--top", "0"], "give a whole number from 1"),
    ("mcp", ["--http", "here"], "is not HOST:PORT"),
    ("review", [NOWHERE, "--update"], "no such workload file"),
    ("review", ["{tmp}", "--update"], "no workload files (.yaml, .yml) in this folder"),
    ("review", ["{tmp}", "--cost", "x"], "must be a percentage from 0 to 1000"),
    ("estimate", ["--model", "{tmp}/nowhere.json", *ESTIMATE], "no such model configuration"),
    ("waterfall", ["--model", "m", "--accelerator", "a", "--users", "0"], "--users must be at least 1"),
    ("import_loadtest", ["999", NOWHERE], "no such option"),
    ("import_loadtest", ["{option}", NOWHERE], "give the result file"),
    ("compare_deployment", [NOWHERE], "give a file, or the URL of a server's metrics"),
    ("compare_deployment", [NOWHERE, "--servers", "0"], "--servers: 0 is too small"),
    ("compare_deployment", [NOWHERE, "--plan", NOWHERE], "give a file"),
    ("compare_deployment", [NOWHERE, "--advice", "999"], "no such option"),
    ("compare_deployment", ["http://127.0.0.1:9/metrics"], "is the server running?"),
    ("calibrate", ["--measurements", NOWHERE], "no such file"),
    ("calibrate", ["--measurements", NOWHERE, "--rounds", "0"], "--rounds: 0 is too small"),
    ("extract_training_options", ["axolotl", "{tmp}/nowhere.whl"], "give a wheel or .tar.gz"),
    ("fidelity", ["--measurements", NOWHERE], "no such file"),
    ("fidelity", ["--measurements", NOWHERE, "--limit", "0"], "--limit: 0 is too small"),
    ("fidelity", ["--measurements", NOWHERE, "--by", "colour"], "unknown column colour; columns:"),
    ("export_openapi", ["{tmp}"], "Is a directory; give a path"),
    ("extract_flags", ["vllm", NOWHERE], "give a wheel"),
    ("delete", ["advice", "999"], "no such advice: 999; its page and the API show the ID"),
    ("delete", ["model", "none"], "no such model: none"),
    ("run", ["worker", "mail"], "no such queue: mail; choose from answers, "),
    ("run", ["web", "answers"], "only workers take queues"),
    ("run", ["web", "--processes", "0"], "--processes: 0 is too small"),
    ("up", ["--port", "99999"], "give a number from 1 to 65535"),
    ("demo", [NOWHERE], "give the path of a workload file"),
    ("token", ["revoke", "aat_none"], "manage.py token list"),
    ("token", ["make", "x", "--days", "0"], "1 to"),
    ("token", ["make", "x", "--scope", "all"], "invalid choice"),
    ("create_organization", ["acme", "--admin", "nobody"], "is not an e-mail address"),
    ("create_organization", ["Acme Inc", "--admin", "a@acme.example"], "is not a slug"),
    ("create_organization", ["default"], "give --admin EMAIL"),
    ("service_account", ["list", "--organization", "none"], "unrecognized arguments"),
    ("service_account", ["--organization", "none", "list"], "no organization 'none'"),
    ("organization", ["limit", "default", "--max-machines", "x"], "use a whole number, or none"),
    ("organization", ["export", "default", NOWHERE], "give a path that you can write to"),
    ("organization", ["delete", "default"], "nothing was deleted"),
    ("sign_in_link", ["nobody"], "no active staff account of this name"),
    ("bench_advise", ["nowhere"], "no such shipped workload: nowhere; see fixtures/workloads"),
    ("bench_advise", ["--runs", "0"], "--runs: 0 is too small"),
    ("bench_quick", ["nowhere"], "no such shipped workload: nowhere; see fixtures/workloads"),
    ("bench_quick", ["--runs", "0"], "--runs: 0 is too small"),
    ("bench_search", ["--accelerators", "nowhere"], "not in the catalog: nowhere; give their slugs"),
    ("import_prices", ["--from", "csv", NOWHERE], "give the path of a file"),
    (
        "import_prices",
        ["--from", "csv", NOWHERE, "--organisation", "none"],
        "no organization 'none'; choose one of",
    ),
    ("prices", ["release", "999"], "no held price 999; `manage.py prices held` lists them"),
    ("evidence", ["import", NOWHERE, "--source", "x"], "cannot be read"),
    ("evidence", ["release", "999"], "no held figure 999; `manage.py evidence held` lists them"),
    ("import_model", ["/etc/nowhere"], "neither a file nor a Hugging Face ID"),
    ("backup", ["--to", NOWHERE], "give a path that you can write to"),
    ("restore", [NOWHERE], "check the path and its permissions"),
    ("restore", ["/dev/null"], "not a complete Assay backup"),
    ("load_catalog", ["{tmp}/nowhere"], "no such directory"),
    ("enrol", ["--accelerator", "none"], "no accelerator none in the catalog; its list"),
    ("enrol", ["--label", "x"], "use NAME=VALUE"),
    ("agents", ["--revoke", "999"], "list them with manage.py agents"),
    ("agents", ["trust", "nobody"], "with manage.py agents"),
    ("agents", ["approve", "machine"], "no registration waits"),
    ("calibrations", ["show", "999"], "list them with manage.py calibrations"),
    ("import_probe", [NOWHERE], "give the path of a file"),
    ("compare_training", [NOWHERE], "give the path of a file"),
    ("study", ["create", NOWHERE], "no such study file"),
    ("study", ["show", "999"], "`manage.py study list` shows the IDs"),
]
WITHOUT_INPUT = {"doctor", "prepare", "retention", "status", "sweep"}


@pytest.fixture(autouse=True)
def one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command closes its connections when it ends; here they are the test's own."""
    monkeypatch.setattr("django.core.management.base.connections", SimpleNamespace(close_all=lambda: None))


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        execute_from_command_line(["manage.py", *words])
    return int(end.value.code or 0)


@pytest.mark.parametrize(("command", "words", "said"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_ends_with_2_and_says_what_to_give(
    command: str, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CatalogLoad.objects.create(version="test")
    option = sample_advice.advice().options.first()
    Agent.objects.create(organisation=sample_advice.advise.default_organisation(), name="machine")
    assert option is not None
    given = [word.format(tmp=tmp_path, option=option.pk) for word in words]
    assert ended(command, *given) == 2
    assert said in capsys.readouterr().err


def test_every_command_that_takes_input_is_among_those_tried() -> None:
    ours = {name for name, app in get_commands().items() if app in ("advisor", "catalog", "probes")}
    assert ours - {command for command, *_ in BAD} - WITHOUT_INPUT == {
        "calibrate_training",
        "export_loadtests",
        "support_matrix",
        "training_layouts",
    }  # below, and in test_training_commands.py


def test_an_export_without_rows_is_no_bad_input_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("export_loadtests") == 1
    assert "Mark it on the page" in capsys.readouterr().err


def test_an_export_to_a_path_that_cannot_be_written_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("advisor.load_tests.measured_rows", lambda tests: [{}])
    monkeypatch.setattr("advisor.load_tests.csv_text", lambda rows: "")
    assert ended("export_loadtests", "--out", str(tmp_path / "nowhere" / "x.csv")) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_support_matrix_that_cannot_be_written_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CatalogLoad.objects.create(version="test")
    monkeypatch.setattr("tests.laboratory.support_matrix.page", lambda *given: "")
    monkeypatch.setattr("advisor.inputs.catalog_resources", lambda: None)
    assert ended("support_matrix", "--write-docs", str(tmp_path / "nowhere" / "x.md")) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_empty_catalog_is_no_bad_input_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("advise", "fixtures/workloads/support-chat.yaml") == 1
    assert "manage.py load_catalog" in capsys.readouterr().err


def test_a_failure_inside_is_no_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(others: object) -> None:
        raise OperationalError("the broker is away")

    monkeypatch.setattr("advisor.advise.sweep", away)
    with pytest.raises(OperationalError):
        execute_from_command_line(["manage.py", "sweep"])


def test_measured_rows_that_may_not_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "rows.csv").write_text("id\n")
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(MeasurementsError, match="rows.csv cannot be read: Permission denied; check its permissions"):
        read(tmp_path / "rows.csv")
