"""Full fine-tuning that fits no chip: with states in the host's memory it fits, and the answer says how slow it is."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.terms.machines.host import Host
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.training_search.layouts import offloaded, offloads_alike, setups_of, trained
from advisor.engine.training_search.search import search
from tests.engine.catalog_sample import GIB, LLAMA_8B, catalog, chip
from tests.engine.training_search.sample import RELIABILITY, asked, rented

MIDDLE = chip("big", memory_bytes=48 * GIB, memory_bytes_per_s=1e12)  # 8B in 16 bits takes 64 GB
CARD = chip("big", memory_bytes=24 * GIB, memory_bytes_per_s=1e12, links=(), chips_per_host=1)
HOST = Host(
    memory_bytes=256 * GIB, cores=32, sockets=1, numa_nodes=1, local_disk_bytes=0.0, network_bytes_per_s=1e9
)  # fmt: skip
TASK = {"tokens": 1e8, "global_batch": 32, "deadline_days": 30.0}


def one(**changes: object) -> Offer:
    return replace(rented(fabric=1), **{"accelerators": 1, "host": HOST} | changes)


def sold(a=MIDDLE, *offers: Offer):
    return catalog(accelerators=(a,), offers=offers or (one(),))


def test_a_card_that_holds_nothing_else_trains_with_offload() -> None:
    workload = asked(**TASK | {"tokens": 1e7, "global_batch": 2})
    found = search(Question(workload, sold()), RELIABILITY)
    (best,) = found.ranked
    run, step = best.trained.layout.run, best.trained.step
    assert all(
        trained(Question(workload, sold()), MIDDLE, s, 1) is None for s in setups_of(MIDDLE, workload.training, False)
    )
    assert (run.offload, run.parallel.zero, best.chips) == ("optimizer", 2, 1)
    assert float(step.offload_s) > 0.5 * float(step.step_s)
    assert best.days > 1e7 / run.global_tokens * float(step.step_s) / 86_400


@pytest.mark.parametrize("global_batch", [2, 32])
def test_weights_stay_on_the_chip_where_they_fit(global_batch: int) -> None:
    """Each pass reads them again from the host, whatever room that makes for larger micro-batches."""
    small = replace(MIDDLE, memory_bytes=36 * GIB)
    asks = asked(**TASK | {"global_batch": global_batch})
    roomy, tight = (offloaded(Question(asks, sold(a)), a, 1, one()) for a in (MIDDLE, small))
    assert roomy is not None and roomy.layout.run.offload == "optimizer"
    assert tight is not None and tight.layout.run.offload == "all"


def test_weights_go_to_the_host_where_they_do_not_fit_beside_the_gradients() -> None:
    (best,) = search(Question(asked(**TASK), sold(CARD)), RELIABILITY).ranked
    assert best.trained.layout.run.offload == "all"
    assert best.trained.layout.run.parallel.zero == 3


@pytest.mark.parametrize("host", [None, replace(HOST, memory_bytes=128 * GIB)])
def test_without_the_hosts_memory_there_is_no_run(host: Host | None) -> None:
    found = search(Question(asked(**TASK), sold(MIDDLE, one(host=host))), RELIABILITY)
    assert not found.ranked
    (refusal,) = found.rejections
    assert refusal.reason == "does_not_fit"
    assert "Offload to host memory, which needs 202 GiB in all" in refusal.detail


def test_runs_that_fit_are_not_offloaded() -> None:
    two = replace(rented(fabric=8), host=HOST)
    found = search(Question(asked(**TASK), sold(MIDDLE, two)), RELIABILITY)
    assert {c.trained.layout.run.offload for c in found.by_chip["big"]} == {"none"}


@pytest.mark.parametrize("task", [{"method": "lora"}, {"optimizer": "adamw_8bit"}, {"precisions": ("fp8",)}])
def test_offload_is_not_tried_where_its_speed_is_unknown(task: dict[str, object]) -> None:
    assert offloaded(Question(asked(**TASK | task), sold()), MIDDLE, 1, one()) is None


def test_cores_and_chips_of_the_host_are_those_of_the_offer() -> None:
    workload = asked(**TASK)
    slow, fast = (offloaded(Question(workload, sold()), MIDDLE, 1, one(host=replace(HOST, cores=n))) for n in (16, 64))
    assert slow is not None and fast is not None
    assert slow.layout.step_s > fast.layout.step_s


def test_other_sellers_need_the_memory_and_the_cores() -> None:
    run = offloaded(Question(asked(**TASK), sold()), MIDDLE, 1, one())
    assert run is not None
    hosts = {
        True: [HOST, replace(HOST, cores=64)],
        False: [None, replace(HOST, cores=16), replace(HOST, memory_bytes=128 * GIB)],
    }
    for expected, some in hosts.items():
        for host in some:
            assert offloads_alike(LLAMA_8B, run, one(), one(host=host)) is expected
