"""The whole product at once: `manage.py demo` starts it, asks it over REST, prints the answer, stops it."""

from pathlib import Path

import yaml

from tests.world import ROOT, World

WORKLOAD = ROOT / "fixtures" / "workloads" / "support-chat.yaml"


def left_over(world: World) -> list[str]:
    """Command lines of live processes of this world's own folder."""
    mark = f"ASSAY_VAR={world.folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def test_the_demo_prints_a_recommendation_and_leaves_nothing_running(world: World) -> None:
    question = yaml.safe_load(WORKLOAD.read_text())
    question["constraints"]["accelerators"] = {"allow": ["h100-sxm"]}  # a small search
    question["variants"] = "no"
    file = world.folder / "workload.yaml"
    file.write_text(yaml.safe_dump(question))
    world.python("manage.py", "load_catalog", "--no-scores")
    output = world.python("manage.py", "demo", str(file))
    lines = output.splitlines()
    assert lines[0].startswith("Rent ") and "H100" in lines[0]  # the answer comes first
    assert len(lines) <= 14  # `make demo` adds one when it installs
    assert "Llama-3.3-70B-Instruct" in output and "a month" in output and "/advice/" in output
    assert world.states() == ["done"]
    assert world.rows("select count(*) from advisor_option")[0][0] >= 1
    assert left_over(world) == []
