"""`manage.py advise`: formats, exit codes, changes, snapshots, and refusals that name the field."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

from advisor import advise, inputs
from advisor.inputs.snapshot import Snapshot
from advisor.result import Answer
from catalog.models import CatalogLoad
from tests import sample_advice

pytestmark = pytest.mark.django_db
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked(engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The questions that reached the engine, which answers with the sample."""
    questions: list[dict[str, Any]] = []

    def recommend(spec: dict[str, Any], snapshot: dict[str, Any], progress: object = None) -> Answer:
        questions.append(spec)
        return Answer.read(sample_advice.result())

    engine.recommend = recommend
    monkeypatch.setattr(inputs, "check_catalog", lambda spec, organisation, files=False: None)
    return questions


@pytest.fixture(autouse=True)
def loaded() -> CatalogLoad:
    return CatalogLoad.objects.create(version="test")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The exit code, output and errors of `manage.py advise` on the sample workload."""
    file = tmp_path / "workload.yaml"
    file.write_text(sample_advice.SPEC)

    def call(*args: str, path: Path = file) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            call_command("advise", str(path), *args)
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    return call


def test_a_recommendation_is_a_table_and_exit_0(run: Run, asked: list[Any]) -> None:
    code, output, errors = run("--full")
    assert (code, errors) == (0, "")
    assert output.startswith(sample_advice.result()["verdict"])
    assert "H200 SXM, FP8" in output and "vllm serve" in output and "best TPOT p95 61 ms > 40 ms" in output


def test_without_full_the_first_screen_is_all_that_is_printed(run: Run, asked: list[Any]) -> None:
    code, output, errors = run()
    assert (code, errors) == (0, "") and len(output.splitlines()) <= 25
    assert "Rent one server of 4 × H200 SXM at nebius by the hour." in output and "--full" in output
    assert "vllm serve" not in output
    assert len(run("--top", "2")[1].splitlines()) <= 25


def test_top_limits_the_recommendations(run: Run, asked: list[Any]) -> None:
    assert len(json.loads(run("--format", "json", "--top", "2")[1])["recommendations"]) == 2


@pytest.mark.parametrize("top", ["0", "-3"])
def test_no_recommendations_at_all_cannot_be_asked_for(run: Run, asked: list[Any], top: str) -> None:
    code, output, errors = run(f"--top={top}")
    assert (code, output, asked) == (2, "", []) and errors.startswith("--top: ")


def test_json_with_every_part_is_the_whole_result(run: Run, asked: list[Any]) -> None:
    found = json.loads(run("--format", "json", "--include", "all")[1])
    assert found.pop("elapsed_s") >= 0
    assert found == {key: value for key, value in sample_advice.result().items() if key != "elapsed_s"}


def test_json_leaves_out_what_include_does_not_name(run: Run, asked: list[Any]) -> None:
    short = json.loads(run("--format", "json")[1])
    assert not short.keys() & {"pareto", "assumptions"}
    assert "pareto" in json.loads(run("--format", "json", "--include", "pareto,hosted")[1])


def test_a_part_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "advise", "w.yaml", "--include", "paretto"])
    assert ended.value.code == 2 and "paretto; use pareto, options" in capsys.readouterr().err


def test_markdown_has_the_plans_the_rejections_and_the_sources(run: Run, asked: list[Any]) -> None:
    _, output, _ = run("--format", "markdown")
    assert output.startswith("# support-chat\n")
    for part in ("| 1 | 4 x H200 SXM", "## Not chosen", "| l40s | misses_slo |", "## Sources", "```sh\nvllm serve"):
        assert part in output


def test_canonical_is_sorted_rounded_and_free_of_clocks(run: Run, asked: list[Any], engine: SimpleNamespace) -> None:
    first = run("--canonical")[1]
    answer = {**sample_advice.result(), "elapsed_s": 99.0}
    engine.recommend = lambda *args: Answer.read(dict(reversed(answer.items())))
    assert run("--canonical")[1] == first
    assert list(json.loads(first)) == sorted(json.loads(first))
    assert "elapsed_s" not in first
    answer["recommendations"][0]["utilisation"] = 1 / 3
    assert json.loads(run("--canonical")[1])["recommendations"][0]["utilisation"] == 0.333333


def test_nothing_feasible_is_exit_3_with_the_nearest_miss(run: Run, asked: list[Any], engine: SimpleNamespace) -> None:
    answer = {**sample_advice.result(), "recommendations": [], "verdict": "Nothing meets this."}
    engine.recommend = lambda *args: Answer.read(answer)
    code, output, _ = run()
    assert code == 3 and len(output.splitlines()) <= 25
    assert (
        "Nothing meets this: the nearest is 4 × Gaudi 3; TTFT p95 1,090 ms." in output and "It qualifies with" in output
    )
    code, output, _ = run("--full")
    assert code == 3
    assert "nearest miss: 2 x H200 SXM" in output and "passes with tpot_ms_p95 >= 62" in output


def test_set_changes_the_question(run: Run, asked: list[Any]) -> None:
    run("--set", "slo.tpot_ms_p95=25", "--set", "constraints.vendors.deny=[nvidia]")
    assert asked[0]["slo"]["tpot_ms_p95"] == 25
    assert asked[0]["constraints"]["vendors"]["deny"] == ["nvidia"]


@pytest.mark.parametrize(
    ("change", "field"), [("slo.tpot_ms_p95=-1", "slo.tpot_ms_p95"), ("trafic.x=1", "trafic"), ("novalue", "--set")]
)
def test_bad_input_is_exit_2_and_names_the_field(run: Run, asked: list[Any], change: str, field: str) -> None:
    code, output, errors = run("--set", change)
    assert (code, output, asked) == (2, "", [])
    assert errors.startswith(f"{field}")


def test_a_file_that_is_not_there_is_exit_2(run: Run, asked: list[Any], tmp_path: Path) -> None:
    code, _, errors = run(path=tmp_path / "absent.yaml")
    assert code == 2 and "absent.yaml: no such workload file; check the path" in errors


@pytest.mark.parametrize(
    ("text", "says"), [("{broken", "not JSON"), ("[]", "not a JSON object"), ("{}", "not a catalog snapshot")]
)
def test_a_broken_snapshot_is_exit_2_and_named(
    run: Run, asked: list[Any], tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "kept.json").write_text(text)
    code, _, errors = run("--snapshot", str(tmp_path / "kept.json"))
    assert (code, asked) == (2, [])
    assert "kept.json: " in errors and says in errors and "delete it" in errors


def test_a_snapshot_that_cannot_be_written_is_named(run: Run, asked: list[Any], tmp_path: Path) -> None:
    code, _, errors = run("--snapshot", str(tmp_path / "nowhere" / "kept.json"))
    assert code == 2 and "kept.json: cannot write the snapshot" in errors


def test_a_model_config_that_is_not_there_is_named(run: Run, asked: list[Any]) -> None:
    code, _, errors = run("--set", "model={config: absent.json}")
    assert code == 2 and "absent.json: no such model configuration" in errors


def test_an_unknown_model_is_exit_2(run: Run, engine: SimpleNamespace) -> None:
    code, _, errors = run("--set", "model=no/such-model")
    assert code == 2 and errors.startswith("model: ")


def test_an_engine_fault_is_not_called_bad_input(run: Run, asked: list[Any], engine: SimpleNamespace) -> None:
    def broken(*args: object) -> None:
        raise ValueError("shapes do not match")

    engine.recommend = broken
    with pytest.raises(ValueError, match="shapes"):
        run()


def test_a_snapshot_is_written_once_and_then_used(
    run: Run, asked: list[Any], engine: SimpleNamespace, tmp_path: Path
) -> None:
    used: list[dict[str, Any]] = []

    def recommend(spec: object, snapshot: Snapshot, progress: object = None) -> Answer:
        used.append(snapshot.stored())
        return Answer.read(sample_advice.result())

    engine.recommend = recommend
    file = tmp_path / "snapshot.json"
    run("--snapshot", str(file))
    engine.snapshot = lambda *args: pytest.fail("the catalog was read again")
    run("--snapshot", str(file))
    assert used[0] == used[1] == json.loads(file.read_text())


def test_a_model_config_is_read_beside_the_workload(run: Run, asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    run("--set", "model={config: config.json}")
    assert asked[0]["model"]["config"] == {"model_type": "llama"}


def test_the_command_leaves_no_advice_behind(run: Run, asked: list[Any]) -> None:
    run()
    assert not advise.Advice.objects.exists()


def test_an_empty_catalog_is_said_as_such(run: Run, loaded: CatalogLoad) -> None:
    loaded.delete()
    with pytest.raises(CommandError, match="load_catalog"):
        run()
