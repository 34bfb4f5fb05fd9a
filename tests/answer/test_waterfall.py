"""`manage.py waterfall`: the steps of one server with the shipped catalog; what cannot be is refused."""

import json

import pytest
from django.core.management import call_command

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
LLAMA = ["--model", "meta-llama/Llama-3.1-8B", "--accelerator", "h200-sxm"]


def test_the_graphs_step_is_the_estimate_of_the_same_server(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("waterfall", *LLAMA, "--format", "json")
    steps = {s["step"]: s for s in json.loads(capsys.readouterr().out)["steps"]}
    fixed = [*LLAMA, "--weights", "bf16", "--isl", "1024", "--osl", "256", "--concurrency", "64", "--format", "json"]
    with pytest.raises(SystemExit):
        call_command("estimate", *fixed)
    plain = json.loads(capsys.readouterr().out)["closed_form"]
    assert steps["graphs"]["output_tokens_per_s"] == pytest.approx(plain["output_tokens_per_s"], rel=1e-3)
    assert steps["graphs"]["tpot_ms"] == pytest.approx(plain["tpot_ms_mean"], rel=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "meta-llama/Llama-3.1-8", "--accelerator", "h200-sxm"], "not in the catalog"),
        (["--model", "meta-llama/Llama-3.3-70B-Instruct", "--accelerator", "rtx-4090"], "does not fit"),
        ([*LLAMA, "--shared", "1.5"], "--shared at least 0"),
        ([*LLAMA, "--users", "0"], "--users must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("waterfall", *words)
    assert ended.value.code == 2 and said in capsys.readouterr().err
