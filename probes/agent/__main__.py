"""Assay's probe agent: measures what this machine's accelerators deliver.

    python3 agent.pyz probe --out result.json         measure, no server involved
    python3 agent.pyz run --server URL --token TOKEN  measure what an Assay server asks for, until stopped

What it does: asks the server for work over HTTPS, at the pace that the server sets; prints what it is about to run;
runs it in a child process bounded in time and memory; sends the figures.

What it never does: listen on a port, run code, a command or a path that came from the server, follow a redirect, read
files that are not its own, change a clock or a power limit, install or update anything.

Read it in this order; each file is short and knows only those above it.

    spec.py       what may be asked: a closed list of kinds, with bounds
    signing.py    how results are signed with this machine's key
    state.py      the files it keeps: its identity (mode 0600) and results not yet acknowledged
    client.py     the protocol: every request it can make
    child.py      the child process: takes its limits upon itself, then measures
    sandbox.py    starts, watches and ends that child
    work.py       the loop: lease, run, deliver
    cli.py        the command line
    suite.py      the measurements, with torch (kinds/); jax_suite.py with jax (jax_kinds.py, jax_whole.py)

It needs Python 3.10 and torch or jax, nothing else.
"""

import sys

from probes.agent import child, cli

if __name__ == "__main__":
    sys.exit(child.main() if sys.argv[1:] == ["child"] else cli.main(sys.argv[1:]))
