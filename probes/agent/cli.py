"""The command line: measure this machine, register it with a server, or run the server's jobs."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from probes.agent import sandbox
from probes.agent import spec as specs
from probes.agent.server import client, signing, state, work

OK, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130
GIB: Final = 1 << 30
# Time to load the library and compile, in addition to the suite.
START_S: Final = 60.0


class BadInput(Exception):
    """The arguments cannot be used; the message says what to give instead."""


def main(argv: Sequence[str], *, command: tuple[str, ...] = sandbox.CHILD) -> int:
    """Runs one command and returns the exit code. `command` starts the child; only tests replace it."""
    given = parser().parse_args(argv)
    try:
        return int(given.run(given, command))
    except (BadInput, specs.SpecError, state.StateError, client.Refused) as error:
        say(str(error))
        return BAD_INPUT
    except client.Unreachable as error:
        say(f"{error} Nothing was changed; try again later.")
        return FAILED
    except KeyboardInterrupt:
        say("Stopped.")
        return STOPPED


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python3 agent.pyz" if sandbox.ROOT.endswith(".pyz") else "python -m probes.agent",
        description="Measures the performance of this machine's accelerators.",
    )
    top.add_argument("--version", action="version", version=f"assay agent {specs.AGENT_VERSION}")
    commands = top.add_subparsers(required=True, metavar="probe | register | run | rotate")
    probe = add(commands, "probe", probe_here, "measure this machine now, without a server")
    probe.add_argument("--suite", choices=("quick", "full"), default="quick", help="default: %(default)s")
    probe.add_argument("--kinds", type=kinds_of, help="only these kinds, comma-separated")
    probe.add_argument("--max-seconds", type=float, help="stop after this many seconds; the rest is listed as skipped")
    probe.add_argument("--out", type=Path, help="write the result document (JSON) to this file")
    probe.add_argument(
        "--state",
        type=Path,
        default=state.default_folder(),
        help="folder of the key that signs --out; default: %(default)s",
    )
    register = add(commands, "register", register_here, "register this machine with an enrollment token")
    run = add(commands, "run", serve, "run a server's jobs until stopped")
    rotate = add(commands, "rotate", rotate_here, "get a new token; the old one expires")
    run.add_argument("--once", action="store_true", help="run one job, send its result and exit")
    run.add_argument("--allow-kinds", type=kinds_of, default=specs.KINDS, help="run only these kinds, comma-separated")
    for one in (probe, run):
        one.add_argument("--library", choices=("torch", "jax"), default="torch", help="default: %(default)s")
        one.add_argument("--host-memory-gib", type=float, help="limit of host memory; default: half of the host's")
        one.add_argument("--dry-run", action="store_true", help="print what would run, without running it")
    for one in (register, run):
        one.add_argument("--name", default=socket.gethostname(), help="name of the machine; default: the host name")
        one.add_argument(
            "--label", type=pair, action="append", default=[], metavar="K=V", help="label; may be repeated"
        )
        one.add_argument("--token", help="aet_... or agt_...; also read from ASSAY_TOKEN or --token-file")
        one.add_argument("--token-file", type=Path, help="file with the token, which keeps it out of the process list")
    for one in (register, run, rotate):
        one.add_argument("--server", required=one is not rotate, help="https://...")
        one.add_argument("--allow-http", action="store_true", help="allow a remote server without TLS")
        one.add_argument(
            "--state", type=Path, default=state.default_folder(), help="state folder; default: %(default)s"
        )
    return top


def add(commands: Any, name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text}.".capitalize())
    command.set_defaults(run=run)
    return command


def kinds_of(text: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := sorted(set(kinds) - set(specs.KINDS)):
        raise argparse.ArgumentTypeError(f"no kind {', '.join(unknown)}; choose from {', '.join(specs.KINDS)}")
    return kinds


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


# --- probe ------------------------------------------------------------------------------------------------------


def probe_here(given: argparse.Namespace, command: tuple[str, ...]) -> int:
    kinds = list(given.kinds) if given.kinds else None
    asked = {"suite": given.suite, "kinds": kinds, "max_s": given.max_seconds, "max_bytes": None}
    spec = specs.checked(asked)
    if given.out and not given.out.parent.is_dir():
        raise BadInput(f"The folder {given.out.parent} of --out does not exist.")
    if given.dry_run:
        return dry_run(given, spec, command)
    registered = (
        given.out and (given.state / "agent.json").exists()
    )  # checked first, because load() would create an identity
    identity = state.load(given.state) if registered else None
    say(f"Runs {specs.summary(spec)} with {given.library}.")
    document = in_child(given, "run", spec, command)
    from probes.agent.suite import table

    if given.out:
        state.write_atomically(given.out, specs.canonical(signed(document, identity)), mode=0o644)
    print("\n".join(table(document, {})))
    return OK


def signed(document: dict[str, Any], identity: state.Identity | None) -> dict[str, Any]:
    """The document, signed if this machine is registered."""
    if not (identity and identity.key):
        say("Not signed: this machine is not registered with a server, so a person must approve the import.")
        return document
    value = signing.of_file(identity.key, identity.install_id, document)
    say("Signed with this machine's key.")
    return {**document, signing.FIELD: {"install_id": identity.install_id, "value": value}}


def dry_run(given: argparse.Namespace, spec: dict[str, Any], command: tuple[str, ...]) -> int:
    steps = in_child(given, "plan", spec, command)
    for step in steps:
        axes = " ".join(f"{name}={value}" for name, value in step["key"].items())
        print(f"{step['kind']:18} {axes}")
    print(f"Would measure {len(steps)} cases: {specs.summary(spec)}. Nothing was run.")
    return OK


def in_child(given: argparse.Namespace, ask: str, spec: dict[str, Any], command: tuple[str, ...]) -> Any:
    """The answer of the child. BadInput, with the end of its log, if it fails."""
    limits = limits_of(given, specs.max_seconds(spec))
    request = {"ask": ask, "spec": spec, "library": given.library}
    with progress_line() as progress:
        outcome = sandbox.run(request, limits, progress=progress, command=command)
    if outcome.code != "ok":
        raise BadInput(f"{outcome.log.strip()}\nThe suite did not finish: {outcome.code}. Nothing was written.".strip())
    return outcome.answer


def limits_of(given: argparse.Namespace, suite_s: float) -> sandbox.Limits:
    host_bytes = int(given.host_memory_gib * GIB) if given.host_memory_gib else None
    return sandbox.limits_for(suite_s + START_S, host_bytes)


class progress_line:
    """Shows progress: one updating line on a terminal, otherwise one line per kind."""

    def __enter__(self) -> sandbox.Progress:
        self.stage = ""
        return self.show

    def show(self, stage: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done}/{total} {stage:24}", end="", file=sys.stderr, flush=True)
        elif stage != self.stage:
            say(f"{done}/{total} {stage}")
        self.stage = stage

    def __exit__(self, *error: object) -> None:
        if sys.stderr.isatty() and self.stage:
            say("")


# --- a server ---------------------------------------------------------------------------------------------------


def register_here(given: argparse.Namespace, command: tuple[str, ...]) -> int:
    token = token_of(given)
    if not token.startswith("aet_"):
        raise BadInput("register needs an enrollment token (aet_...). Create one in Assay under Workers.")
    identity = enrol(given, token, {})
    say(f"Registered as agent {identity.agent_id}; its token is stored in {given.state / 'agent.json'}.")
    return OK


def serve(given: argparse.Namespace, command: tuple[str, ...]) -> int:
    if given.dry_run:
        say(f"Would request jobs from {given.server} and run {', '.join(given.allow_kinds)}. Nothing was sent or run.")
        return OK
    facts_limits = limits_of(given, START_S)
    facts = sandbox.run({"ask": "facts", "spec": None, "library": given.library}, facts_limits, command=command)
    if facts.code != "ok":
        raise BadInput(f"{facts.log.strip()}\n{given.library} cannot be used here: {facts.code}.")
    identity = identified(given, facts.answer)
    server = client.Server(identity.server, identity.token, identity.key)
    runner = functools.partial(run_job, given, command)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    loop = work.Loop(server, given.state, facts.answer, tuple(given.allow_kinds), runner, stop, say)
    return work.serve(loop, once=given.once)


def run_job(
    given: argparse.Namespace,
    command: tuple[str, ...],
    spec: dict[str, Any],
    deadline_s: float,
    progress: sandbox.Progress,
    cancel: threading.Event,
) -> sandbox.Outcome:
    """Runs a leased spec, within the time of the suite and the deadline of the server."""
    limits = limits_of(given, min(specs.max_seconds(spec), max(deadline_s - START_S, 1.0)))
    request = {"ask": "run", "spec": spec, "library": given.library}
    return sandbox.run(request, limits, progress=progress, cancel=cancel, command=command)


def token_of(given: argparse.Namespace) -> str:
    if given.token_file:
        try:
            return str(given.token_file.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise BadInput(f"--token-file {given.token_file}: {error.strerror}.") from error
    return given.token or os.environ.get("ASSAY_TOKEN", "")


def identified(given: argparse.Namespace, facts: dict[str, Any]) -> state.Identity:
    """This agent's identity: the stored one, one with the given token, or a new registration."""
    stored, token = state.load(given.state), token_of(given)
    url = client.checked_url(given.server, allow_http=given.allow_http)
    known = stored.token and stored.server == url
    if known and (not token or state.fingerprint(token) == stored.enrolment):
        return stored
    if token.startswith("aet_"):
        return enrol(given, token, facts)
    if token.startswith("agt_"):
        return state.save_registration(given.state, stored, url, "", token, token)
    raise BadInput(f"A token is needed for {url}: give aet_... or agt_... in --token, --token-file or ASSAY_TOKEN.")


def enrol(given: argparse.Namespace, token: str, facts: dict[str, Any]) -> state.Identity:
    identity = state.load(given.state)
    url = client.checked_url(given.server, allow_http=given.allow_http)
    server = client.Server(url, key=identity.key if identity.server == url else "")
    answer = client.register(
        server, token, identity.install_id, given.name, dict(given.label), facts.get("device") or {}
    )
    return state.save_registration(given.state, identity, url, answer.agent_id, answer.token, token, answer.key)


def rotate_here(given: argparse.Namespace, command: tuple[str, ...]) -> int:
    identity = state.load(given.state)
    if not identity.token:
        raise BadInput(f"{given.state} has no token. Register first.")
    url = client.checked_url(given.server or identity.server, allow_http=given.allow_http)
    if url != identity.server:
        raise BadInput(f"This agent is registered with {identity.server}, not with {url}.")
    token, key = client.rotate(client.Server(url, identity.token))
    state.save(given.state, dataclasses.replace(identity, token=token, key=key or identity.key))
    say("The agent has a new token; the old one expires in a few minutes.")
    return OK
