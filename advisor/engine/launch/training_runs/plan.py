"""Launch files of a training plan: which launchers can run it, what they do differently, and their files and jobs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.engine.launch.training_runs.jobs import Job, job_files, torchrun
from advisor.engine.launch.training_runs.place import TrainingPlace, facts_of, per_device
from advisor.engine.launch.training_runs.templates import files_of, lines_of
from advisor.engine.training import (
    ADAPTERS_FIRST,
    FRAMEWORKS,
    Difference,
    Run,
    differences,
    frameworks_of,
    launch_differences,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """How one training framework is started."""

    template: str
    options: tuple[str, ...]  # the lists of fixtures/flags/training that its options are checked against
    released: bool = True  # False: these lists are of the project's source, because no release could be read
    under_torchrun: bool = True
    in_pods: bool = True


LAUNCHERS = {
    "fsdp2": Launcher(template="fsdp.txt", options=("torchrun-2.13.0",)),
    "axolotl": Launcher(template="axolotl.txt", options=("axolotl-0.19.0",)),
    "megatron-bridge": Launcher(template="megatron.txt", options=("megatron-bridge-0.3.1", "megatron-core-0.16.1")),
    "deepspeed": Launcher(template="axolotl.txt", options=("axolotl-0.19.0", "deepspeed-0.18.9")),
    "maxtext": Launcher(template="maxtext.txt", options=("maxtext-0.2.5",), under_torchrun=False),
    "nxdt": Launcher(template="neuron.txt", options=("nxdt-2025",), released=False, in_pods=False),
}
# https://rocm.docs.amd.com/en/docs-7.1.0/reference/api-libraries.html ("Train a model with Primus and Megatron-LM")
PRIMUS = "AMD runs tensor and pipeline parallelism with Primus and Megatron-LM; its files are not written here"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingLaunch:
    """How to start a plan with one launcher."""

    framework: str
    title: str
    command: str  # of each host
    files: dict[str, str]
    notes: tuple[str, ...]  # what to do first, and what differs from the plan
    run: Run  # as the launcher starts it, in devices
    runs_plan: bool  # False: a difference may not fit on the chips, or trains something else


def _ordered(vendor: str, run: Run) -> list[str]:
    """Launchers of the vendor: those that can run the plan first, then those that express more of it."""
    found = {name: launch_differences(run, vendor, name) for name in frameworks_of(vendor)}
    places = list(FRAMEWORKS)

    def rank(name: str) -> tuple[int, bool, int, int]:
        preferred = run.recipe.method != "full" and name == ADAPTERS_FIRST
        prevented = sum(d.prevents for d in found[name])
        return prevented, not preferred, len(found[name]), places.index(name)

    return sorted(found, key=rank)


def training_launch(run: Run, place: TrainingPlace, framework: str = "") -> TrainingLaunch:
    """Command, files and notes; without a name, of the launcher that expresses most of the plan."""
    plan = per_device(run, place)
    name = framework or next(iter(_ordered(place.vendor, plan)), "")
    if name not in LAUNCHERS:
        raise ValueError(f"{name or place.vendor}: no launcher; known are {', '.join(LAUNCHERS)}")
    launcher = LAUNCHERS[name]
    actual = FRAMEWORKS[name].runs(plan, place.vendor)
    unlike = differences(plan, actual)
    facts = facts_of(actual, place, name)
    files = files_of(launcher.template, facts)
    install, prepare, own_notes = (lines_of(launcher.template, part, facts) for part in ("install", "prepare", "notes"))
    job = Job(
        argv=tuple(shlex.split(" ".join(lines_of(launcher.template, "argv", facts)))),
        files=files,
        under_torchrun=launcher.under_torchrun,
        in_pods=launcher.in_pods,
        place=place,
    )
    packages = f"pip install {' '.join(install)}"
    runs_plan = not any(d.prevents for d in unlike)
    elsewhere = (PRIMUS,) if place.vendor == "amd" and not runs_plan else ()
    notes = (*_first(packages, place), *own_notes, *elsewhere, *_device_note(place), *_told(unlike))
    command = torchrun(job, "<address of the first host>:29500")
    return TrainingLaunch(
        framework=name,
        title=FRAMEWORKS[name].title,
        command=shlex.join(command),
        files=files | {"prepare.sh": _prepare([packages, *prepare], notes)} | job_files(job),
        notes=notes,
        run=actual,
        runs_plan=runs_plan,
    )


def _first(packages: str, place: TrainingPlace) -> tuple[str, ...]:
    notes = [f"install: {packages}", "run prepare.sh once"]
    if place.hosts > 1:
        notes.append("all hosts run the same command in one folder that they share")
    if not place.tokens:
        notes.append("no number of tokens was given: set the steps of the run")
    if not (place.checkpoint_interval_s and place.step_s):
        notes.append("no checkpoint interval was given: it is a default, which you should set")
    notes.append("the learning rate, its schedule and weight decay are usual starting points, not part of the plan")
    return tuple(notes)


def _device_note(place: TrainingPlace) -> tuple[str, ...]:
    n = place.devices_per_chip
    return (f"each chip is {n} devices for the software: parallel sizes count devices",) if n > 1 else ()


def _told(unlike: tuple[Difference, ...]) -> tuple[str, ...]:
    prevents = tuple(f"not as planned, may not fit or trains differently: {d.note}" for d in unlike if d.prevents)
    return prevents + tuple(f"not as planned: {d.note}" for d in unlike if not d.prevents)


def _prepare(steps: Sequence[str], notes: tuple[str, ...]) -> str:
    """A script with the steps before the run; notes are comments, one line each whatever a model is called."""
    comments = [f"# {' '.join(note.split())}" for note in notes]
    return "\n".join(["#!/bin/sh", *comments, "set -e", *steps]) + "\n"
