"""Assay's probe agent: measures the performance of this machine's accelerators.

    python3 agent.pyz probe --out result.json         measure without a server
    python3 agent.pyz run --server URL --token TOKEN  run the jobs of an Assay server until stopped

What it does: polls the server for jobs over HTTPS, at the interval that the server sets; prints what it is about to
run; runs it in a child process with limits on time and memory; sends the results.

What it never does: listen on a port; run code, commands or paths from the server; follow redirects; read files other
than its own; change clocks or power limits; install or update anything.

Read the files in this order. Each is short and depends only on those above it.

    spec.py       what a job may ask for: a closed list of kinds, with bounds
    signing.py    signs results with this machine's key
    state.py      its files: the identity (mode 0600), and results that the server has not acknowledged
    client.py     the protocol: every request it can make
    child.py      the child process: sets its own limits, then measures
    sandbox.py    starts, monitors and stops the child
    work.py       the loop: lease, run, deliver
    cli.py        the command line
    suite.py      the measurements with torch (kinds/); xla/ with jax

It needs only Python 3.10 or later, and torch or jax.
"""

import sys

from probes.agent import child, cli

if __name__ == "__main__":
    sys.exit(child.main() if sys.argv[1:] == ["child"] else cli.main(sys.argv[1:]))
