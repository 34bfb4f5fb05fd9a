"""Many processes that lease jobs from one database as fast as they can: `racers JOBS [PROCESSES]`.

Prints how many leases there were, how many jobs were leased twice and how many were never leased.
"""

import json
import os
import sys
import time

import django


def prepare(jobs_count: int, processes: int) -> list[int]:
    from probes.machines import agents, jobs
    from probes.models import Agent

    organisation = agents.default_organisation()
    for _ in range(jobs_count):
        jobs.request({"suite": "quick"}, organisation=organisation)
    made = [
        Agent.objects.create(organisation=organisation, name=f"racer-{n}", token_hash=f"{n:064}")
        for n in range(processes)
    ]
    return [agent.pk for agent in made]


def race(pk: int) -> None:
    """Lease, finish, lease again, until there is nothing left."""
    from django.db import close_old_connections

    from probes.machines import jobs
    from probes.models import Agent

    agent = Agent.objects.get(pk=pk)
    misses = 0
    while misses < 5:
        lease = jobs.lease(agent)
        misses = 0 if lease else misses + 1
        if lease:
            assert jobs.finish(lease) == "accepted"
        else:
            time.sleep(0.02)
    close_old_connections()


def main(jobs_count: int, processes: int = 8) -> int:
    django.setup()
    from django.db import connection

    from probes.models import Job, Lease

    pks = prepare(jobs_count, processes)
    connection.close()  # none crosses a fork
    begun = time.monotonic()
    children = []
    for pk in pks:
        child = os.fork()
        if not child:
            try:
                race(pk)
            except BaseException as error:  # the child must not run the parent's code
                print(repr(error), file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(child)
    fine = all(os.waitpid(child, 0)[1] == 0 for child in children)
    seconds = time.monotonic() - begun
    leased = list(Lease.objects.values_list("job_id", flat=True))
    report = {
        "leases": len(leased),
        "double": len(leased) - len(set(leased)),
        "never": Job.objects.exclude(state="done").count(),
        "racers": len(set(Lease.objects.values_list("agent_id", flat=True))),
        "leases_per_s": round(len(leased) / seconds),
    }
    print(json.dumps(report))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
