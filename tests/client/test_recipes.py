"""Every recipe of docs/reference/api.md does on a server what the page says; the blocks are run as they stand."""

import asyncio
import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from advisor.client.calls import Answer
from tests import sample_load_results
from tests.client import build
from tests.client.conftest import CHAT
from tests.docs import FENCE

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text()
SECTIONS = dict(re.findall(r"^#{2,3} (.+?)\n(.*?)(?=^#{2,3} |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
NAMES = re.findall(r"^### (.+)$", PAGE.partition("## Recipes")[2], flags=re.MULTILINE)


def block(title: str, kind: str, number: int = 0) -> str:
    return [body for name, body in FENCE.findall(SECTIONS[title]) if name == kind][number]


class Folder:
    """A folder with a workload, `assay` and `assay_client`, and a token."""

    def __init__(self, path: Path, server: str, token: str) -> None:
        self.path = path
        (path / "workload.yaml").write_text(CHAT)
        (path / "bin").mkdir()
        (path / "bin" / "assay").write_text(f'#!/bin/sh\nexec {sys.executable} -m advisor "$@"\n')
        (path / "bin" / "assay").chmod(0o755)
        (path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (path / "bin" / "python3").chmod(0o755)
        build.hand_written(path / "lib")
        self.env = {**os.environ, "PATH": f"{path / 'bin'}:{os.environ['PATH']}", "ASSAY_VAR": str(path / "var")}
        self.env |= {"ASSAY_URL": server, "ASSAY_TOKEN": token, "PYTHONPATH": f"{path / 'lib'}:{ROOT}"}

    def run(self, *command: str, given: str = "", code: int = 0) -> str:
        """What it printed."""
        done = subprocess.run(command, cwd=self.path, env=self.env, input=given, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout

    def python(self, text: str, given: str = "") -> str:
        return self.run(sys.executable, "-c", text, given=given)

    def sh(self, text: str, code: int = 0) -> str:
        return self.run("bash", "-euc", text, code=code)


@pytest.fixture
def folder(tmp_path: Path, server: str, token: str) -> Folder:
    return Folder(tmp_path, server, token)


def test_the_page_has_its_sections_and_six_recipes() -> None:
    assert {"Errors", "Limits", "Pagination", "Versioning"} <= SECTIONS.keys()
    assert len(NAMES) >= 6


def test_the_client_of_the_page(folder: Folder) -> None:
    assert "usd_per_month" in folder.python(block("Clients", "python"))


def test_a_fleet_from_a_spreadsheet(folder: Folder) -> None:
    lines = ["name,model,input_tokens,output_tokens,requests_per_s", "small,meta-llama/Llama-3.1-8B,500,100,1"]
    (folder.path / "fleet.csv").write_text("\n".join([*lines, "wrong,acme/none,500,100,1"]) + "\n")
    small = "traffic}"
    text = block("Size a fleet from a spreadsheet", "python")
    assert small in text
    # the smallest question: on one accelerator
    text = text.replace(small, 'traffic, "constraints": {"accelerators": {"allow": ["l40s"]}}, "variants": "no"}')
    folder.python(text)
    first, wrong = list(csv.DictReader((folder.path / "sized.csv").open(newline="")))
    assert "L40S" in first["option"] and float(first["usd_per_month"]) > 0 and "/advice/" in first["page"]
    assert "model" in wrong["option"] and not wrong["page"]


def test_a_sheet_that_stays_current(answer: Answer, server: str, token: str) -> None:
    """What both sheets ask for, as they ask for it."""
    query, script = (block("Size a fleet from a spreadsheet", "text", n) for n in range(2))
    [path] = re.findall(r'RelativePath = "([^"]+)"', query)
    scheme = re.findall(r"'?Authorization'?[ :=]+[\"'](Bearer )", query + script)
    assert scheme == ["Bearer ", "Bearer "]
    url = f"{server}/{path.replace('ID', answer.id)}"
    found = httpx.get(url, headers={"Authorization": f"{scheme[0]}{token}"})
    rows = list(csv.DictReader(io.StringIO(found.text)))
    assert found.status_code == 200 and len(rows) == len(answer.rows)


HOST = """
const { execFileSync } = require("node:child_process");
const [server, token, path] = process.argv.slice(2);
const PropertiesService = { getScriptProperties: () => ({ getProperty: (name) => ({ ASSAY_TOKEN: token })[name] }) };
const UrlFetchApp = { fetch(url, { headers }) {
  const sent = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const text = execFileSync("curl", ["-sS", "--fail", ...sent, url.replace("https://assay.example", server)]);
  return { getContentText: () => text.toString("utf8") };
} };
const Utilities = { parseCsv: (text) => text };
"""


@pytest.mark.node
def test_a_function_of_a_google_sheet(tmp_path: Path, answer: Answer, server: str, token: str) -> None:
    """The script as it stands, with stand-ins for the services of Apps Script."""
    script = block("Size a fleet from a spreadsheet", "text", 1)
    (tmp_path / "sheet.cjs").write_text(f"{HOST}{script}\nprocess.stdout.write(assay(path));\n")
    command = ["node", "sheet.cjs", server, token, f"/advice/{answer.id}/options.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["label"] for row in csv.DictReader(io.StringIO(done.stdout))] == [row["label"] for row in answer.rows]


def test_a_nightly_watch(folder: Folder) -> None:
    text = block("Watch prices every night", "sh")
    folder.sh(text)
    kept = folder.path / "assay-answers.json"
    answers = json.loads(kept.read_text())
    folder.sh(text)
    assert (folder.path / "moved.md").read_text()
    for each in answers.values():  # as if prices had been half of today's
        for key in [key for key in each if "usd" in key and isinstance(each[key], float)]:
            each[key] /= 2
    kept.write_text(json.dumps(answers))
    folder.sh(text, code=1)


def test_a_gate(folder: Folder) -> None:
    text = block("Gate a merge", "sh")
    folder.sh(text)
    assert "L40S" in (folder.path / "answer.md").read_text()
    folder.sh(text.replace("60000", "1"), code=3)


def test_a_load_test_is_imported(folder: Folder, answer: Answer) -> None:
    result = sample_load_results.vllm(model_id="meta-llama/Llama-3.1-8B")
    (folder.path / "result.json").write_text(json.dumps(result))
    text = block("Import a load test", "sh").replace("/ID/", f"/{answer.id}/")
    assert json.loads(folder.sh(text))["measured"]


def test_two_regions(folder: Folder) -> None:
    printed = folder.python(block("Compare two regions", "python"))
    assert [line.split()[0] for line in printed.splitlines()] == ["us", "eu"]


def test_an_assistant(folder: Folder, server: str, token: str) -> None:
    given = json.loads(block("Ask from an AI assistant", "json"))["mcpServers"]["assay"]
    assert given["env"].keys() == {"ASSAY_URL", "ASSAY_TOKEN"}
    env = {**folder.env, **{key: folder.env[key] for key in given["env"]}}
    command = str(folder.path / "bin" / given["command"])

    async def ask() -> Any:
        async with Client(StdioServerParameters(command=command, args=given["args"], env=env)) as client:
            return len((await client.list_tools()).tools), await client.call_tool("list_answers", {"limit": 1})

    count, result = asyncio.run(ask())
    assert count == 9 and not result.is_error  # nine, as the page says


def test_terraform(folder: Folder) -> None:
    """The protocol of the data source: an object of strings on stdin, and one on stdout."""
    configuration = block("Use an answer in Terraform", "text")
    [program] = re.findall(r'program = \["python3", "([^"]+)"\]', configuration)
    (folder.path / program).write_text(block("Use an answer in Terraform", "python"))
    query = dict(re.findall(r'(\w+) = "([^"]+)"', re.findall(r"query\s+= \{(.+)\}", configuration)[0]))
    found = json.loads(folder.run("python3", program, given=json.dumps(query)))
    assert all(isinstance(each, str) for each in found.values()) and found["accelerator"] == "l40s"
    for key in re.findall(r"data\.external\.assay\.result\.(\w+)", configuration):
        assert key in found
