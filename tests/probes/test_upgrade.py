"""The database of version 0.1.0, with its machine, its results and its calibrations, under this version."""

import lzma
from pathlib import Path

from tests.world import ROOT, World

OLD = ROOT / "tests" / "databases" / "0.1.0.sqlite3.xz"
LOOK = """
import django; django.setup()
from django.test import Client
from probes.fitted import calibrations
from probes.machines import agents
from probes.models import Agent, Result
agent, result = Agent.objects.get(), Result.objects.get()
client = Client(headers={"Host": "localhost"})
given = client.post("/api/agent/v1/register", {
    "enrolment_token": agents.enrol({})[0], "install_id": agent.install_id, "agent_version": "x", "name": "thief",
}, content_type="application/json", headers={"Agent-Protocol": "2"})
print(given.status_code, bool(agents.rotate(agent).key), result.state, result.method, result.waiting)
print([client.get(path).status_code for path in (
    "/workers", f"/workers/{agent.pk}", f"/workers/results/{result.pk}", "/workers/calibrations")])
"""


def test_machines_and_results_of_the_first_version_go_on(tmp_path: Path) -> None:
    file = tmp_path / "assay.sqlite3"
    file.write_bytes(lzma.decompress(OLD.read_bytes()))
    world = World(tmp_path, f"sqlite:///{file}")
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    world.python("manage.py", "migrate", "-v0")
    assert world.python("-c", LOOK).splitlines() == ["409 True accepted 1 []", "[200, 200, 200, 200]"]
