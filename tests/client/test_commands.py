"""Commands that ask a server print what they print on the server itself."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor.client.calls import Answer
from advisor.management.commands.advise import Command
from tests.api.test_generated_client import WORKLOADS
from tests.client.conftest import CHAT, ESTIMATE

pytestmark = pytest.mark.django_db
Run = Callable[..., tuple[int, str, str]]
DEPLOYMENT = [f"--{key}={value}" for key, value in ESTIMATE.items()]
IMPOSSIBLE = ("--set", "slo.ttft_ms_p95=1")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str) -> Run:
    """Runs a command with the token in its environment: its exit code and what it printed."""
    monkeypatch.setenv("ASSAY_TOKEN", token)

    def run_it(name: str, *given: Any, server: str = "") -> tuple[int, str, str]:
        try:
            call_command(name, *map(str, given), f"--server={server}")
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception as error:
            code = getattr(error, "returncode", -1)
            print(error, file=sys.stderr)
        return code, *capsys.readouterr()

    return run_it


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(CHAT)
    return tmp_path / "chat.yaml"


def without_time(text: str) -> Any:
    return {key: value for key, value in json.loads(text).items() if key != "elapsed_s"}


@pytest.mark.parametrize(
    "given",
    [(), ("--full",), ("--canonical",), ("--format", "markdown"), ("--quick",), ("--document", "memo", "--out", "-")],
    ids=str,
)
def test_advise_prints_the_same(given: tuple[str, ...], run: Run, chat: Path, server: str) -> None:
    here, there = run("advise", chat, *given), run("advise", chat, *given, server=server)
    lines = [line for line in zip(here[1].splitlines(), there[1].splitlines(), strict=True) if line[0] != line[1]]
    assert all("computed in" in one or " s" in one for one, _ in lines) and len(lines) <= 1, lines
    assert here[0] == there[0] == 0 and there[1]


def test_advise_prints_the_same_json(run: Run, chat: Path, server: str) -> None:
    given = ("--format", "json", "--include", "pareto", "--top", "1")
    here, there = run("advise", chat, *given), run("advise", chat, *given, server=server)
    assert without_time(here[1]) == without_time(there[1])


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_kind_of_workload_prints_the_same(name: str, run: Run, tmp_path: Path, server: str) -> None:
    (tmp_path / "it.yaml").write_text(json.dumps(WORKLOADS[name]))
    here, there = (run("advise", tmp_path / "it.yaml", "--canonical", server=each) for each in ("", server))
    assert here == there and here[0] == (3 if name == "too-fast" else 0)


WRONG = {
    "empty": "",
    "a list": "- a",
    "no YAML": "name: [",
    "no text": "\0",
    "unknown keys": CHAT.replace("slo:", "slos:") + "trafic: 1\n",
    "wrong types": CHAT.replace("requests_per_s: 2", "requests_per_s: many"),
    "unknown names": CHAT.replace("l40s", "h900").replace("vllm", "none"),
    "an unknown model": CHAT.replace("meta-llama/Llama-3.1-8B", "acme/none"),
    "contradictions": CHAT.replace(
        "acquisition: [rent]", "acquisition: [rent], providers: {allow: [aws], deny: [aws]}"
    ),
    "a missing file": CHAT.replace("input_tokens: 800", "input_tokens: {trace: none.csv}"),
    "a part that is missing": "kind: portfolio\nname: all\nworkloads: [none.yaml]\n",
}


@pytest.mark.parametrize("command", ["advise", "review"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_workloads_are_refused_alike(command: str, name: str, run: Run, tmp_path: Path, server: str) -> None:
    (tmp_path / "it.yaml").write_text(WRONG[name])
    more = ("--update", "--answers", tmp_path / "kept.json") if command == "review" else ()
    here, there = (run(command, tmp_path / "it.yaml", *more, server=each) for each in ("", server))
    assert here[:2] == there[:2] == (2, "")
    logged = "[django.request]"
    assert here[2] == "".join(line for line in there[2].splitlines(True) if logged not in line)


def test_exit_codes_of_advise(run: Run, chat: Path, server: str) -> None:
    assert run("advise", chat, *IMPOSSIBLE, server=server)[0] == 3
    code, out, err = run("advise", chat, "--set", "traffic.requests_per_s=-1", server=server)
    assert (code, out) == (2, "") and "traffic.requests_per_s" in err
    code, _, err = run("advise", chat, "--set", "model=acme/none", server=server)
    assert code == 2 and err.startswith("model: ")
    assert run("advise", chat, "--snapshot", "file", server=server)[0] == 2
    assert run("advise", chat.parent / "none.yaml", server=server)[0] == 2


def test_files_that_a_workload_names_are_sent(run: Run, tmp_path: Path, server: str) -> None:
    rows = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n / 2},{700 + n},200\n" for n in range(200))
    (tmp_path / "trace.csv").write_text(rows)
    (tmp_path / "traced.yaml").write_text(CHAT.replace("input_tokens: 800", "input_tokens: {trace: trace.csv}"))
    given = ("advise", tmp_path / "traced.yaml", "--format", "json")
    here, there = run(*given), run(*given, server=server)
    assert here[0] == there[0] == 0, there
    assert without_time(here[1])["recommendations"] == without_time(there[1])["recommendations"]


def test_estimate_prints_the_same(run: Run, server: str, chat: Path) -> None:
    training = ("--kind=finetuning", f"--model={ESTIMATE['model']}", "--accelerator=h100-sxm", "--method=lora")
    steps = ("--sequence-length=2048", "--micro-batch=1", "--global-batch=8", "--count=1")
    of_file = (f"--workload={chat}", "--accelerator=l40s", "--weights=fp8")
    for given in (DEPLOYMENT, [*DEPLOYMENT, "--format=json"], of_file, (*training, *steps)):
        here, there = run("estimate", *given), run("estimate", *given, server=server)
        assert here == there and here[0] == 0
    assert run("estimate", *DEPLOYMENT, "--weights=fp32", "--accelerator=l4", server=server)[0] == 3
    code, _, err = run("estimate", *DEPLOYMENT, "--accelerator=h900", server=server)
    assert code == 2 and err.startswith("--accelerator: ")


def test_status_prints_the_same(run: Run, server: str) -> None:
    for given in ((), ("--json",)):
        assert run("status", *given) == run("status", *given, server=server)
    assert run("status", "--answers", server=server)[0] == 2


def test_review_keeps_the_same(run: Run, chat: Path, server: str) -> None:
    kept = []
    for address in ("", server):
        file = chat.parent / f"kept{len(kept)}.json"
        assert run("review", chat, "--answers", file, "--update", server=address)[0] == 0
        kept.append(json.loads(file.read_text()))
    assert kept[0] == kept[1]
    assert run("review", chat, "--answers", chat.parent / "kept0.json", server=server)[0] == 0
    chat.write_text(CHAT.replace("requests_per_s: 2", "requests_per_s: 200"))
    assert run("review", chat, "--answers", chat.parent / "kept0.json", server=server)[0] == 1
    chat.write_text("nothing: here\n")
    code, _, err = run("review", chat, "--answers", chat.parent / "kept0.json", server=server)
    assert code == 2 and err.startswith(str(chat))


SAMPLES = Path(__file__).parents[1] / "deployments" / "samples"
BILL = """\
BilledCost,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,EffectiveCost,ListCost
120.00,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-03T00:00:00Z,2026-10-04T00:00:00Z,120.00,150.00
"""


def test_compare_deployment_prints_the_same(run: Run, chat: Path, server: str, answer: Answer) -> None:
    log = (SAMPLES / "vllm.log", "--model", ESTIMATE["model"], "--accelerator", "h100-sxm")
    (chat.parent / "empty.txt").write_text("nothing\n")
    for given in (log, (*log, "--format", "json"), (*log, "--workload", chat), (*log, "--advice", f"{answer.id}/1"),
                  (*log, "--accelerator", "h900"), (*log, "--advice", "12"), (chat.parent / "empty.txt",),
                  (*log, "--advice", f"{answer.id}/99")):  # fmt: skip
        here, there = run("compare_deployment", *given), run("compare_deployment", *given, server=server)
        assert here[:2] == there[:2], given
    plan = chat.parent / "plan.json"
    plan.write_text(json.dumps(answer.result))
    code, _, err = run("compare_deployment", *log, "--plan", plan, server=server)
    assert code == 2 and "--server ''" in err


def test_actuals_prints_the_same(run: Run, chat: Path, server: str, answer: Answer) -> None:
    bill = chat.parent / "bill.csv"
    bill.write_text(BILL)
    for given in ((), ("--advice", answer.id), ("--workload", chat), ("--advice", "none"), ("--workload", bill),
                  ("--advice", answer.id, "--option", "99"), ("--advice", answer.id, "--format", "json")):  # fmt: skip
        here, there = run("actuals", "--bill", bill, *given), run("actuals", "--bill", bill, *given, server=server)
        assert here[:2] == there[:2], given


class Older(BaseHTTPRequestHandler):
    """A server of another version, whose answers have other keys, and one that shows a page of its own."""

    reply = b"{}"
    VERSION = b'{"application": "0.0.1"}'

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = self.VERSION if self.path.endswith("/version") else self.reply
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *given: Any) -> None:
        pass


@pytest.mark.parametrize("name", ["advise", "estimate", "review", "status", "compare_deployment", "actuals"])
def test_a_server_of_another_version_or_none_of_ours(name: str, run: Run, chat: Path) -> None:
    (chat.parent / "bill.csv").write_text(BILL)
    given = {"advise": [chat], "estimate": DEPLOYMENT, "review": [chat, "--update"], "status": [],
             "compare_deployment": [SAMPLES / "vllm.log", "--accelerator", "h100-sxm"],
             "actuals": ["--bill", chat.parent / "bill.csv", "--workload", chat]}[name]  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), Older)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for reply, said in ((b'{"id": "a", "state": "done"}', "runs Assay 0.0.1"), (b"<html>", "is it an Assay server?")):
        Older.reply = reply
        code, out, err = run(name, *given, server=address)
        assert (code, out, err.count("\n")) == (1, "", 1) and said in err, err
    server.shutdown()


def test_asking_a_server_does_not_load_the_pages(server: str, token: str, tmp_path: Path) -> None:
    """Their checks import the engine and every view; `status` and `estimate` need neither the tables nor the pages."""
    env = {**os.environ, "ASSAY_URL": server, "ASSAY_TOKEN": token, "ASSAY_VAR": str(tmp_path)}
    env |= {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    code = "import atexit, sys\nfrom advisor.__main__ import main\nsys.argv[1:] = {!r}\n"
    code += "atexit.register(lambda: print({}, file=sys.stderr))\nmain()"
    loaded = "[m for m in ('advisor.urls', 'advisor.api.views', 'numba') if m in sys.modules]"
    for given in (["status"], ["estimate", *DEPLOYMENT]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(given, loaded)], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stderr.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", ["advise", "estimate", "review", "status"])
def test_a_server_that_is_not_there_or_refuses(
    name: str, run: Run, chat: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.client.calls.time.sleep", lambda _: None)
    given = {"advise": [chat], "estimate": DEPLOYMENT, "review": [chat, "--update"], "status": []}[name]
    for address, said in (("http://127.0.0.1:9", "does not answer"), ("assay.example", "ASSAY_URL"), (server, "401")):
        if address == server:
            monkeypatch.setenv("ASSAY_TOKEN", "aat_wrong")
        code, out, err = run(name, *given, server=address)
        assert (code, out, err.count("\n")) == (1, "", 1) and said in err


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """ASSAY_URL alone is a setting of servers; their own commands compute."""
    for url, key, expected in (("http://a", "", ""), ("", "aat_x", ""), ("http://a", "aat_x", "http://a")):
        monkeypatch.setenv("ASSAY_URL", url)
        monkeypatch.setenv("ASSAY_TOKEN", key)
        assert Command().create_parser("assay", "advise").parse_args(["file"]).server == expected


def test_a_machine_without_a_database_asks(server: str, token: str, chat: Path, answer: Answer) -> None:
    """As after `pip install`: `assay advise` in an empty folder."""
    env = {**os.environ, "ASSAY_URL": server, "ASSAY_TOKEN": token, "ASSAY_VAR": str(chat.parent / "var")}
    env |= {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    env.pop("DATABASE_URL", None)
    command = [sys.executable, "-m", "advisor", "advise", "chat.yaml"]
    done = subprocess.run(command, cwd=chat.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert answer.rows[0]["accelerator_name"] in done.stdout
    assert not list((chat.parent / "var").glob("*.sqlite3"))
