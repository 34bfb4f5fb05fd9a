"""What an instance has: parts of a socket with their own memory, a cache that fits, disk, download of the weights."""

import re
from typing import Any

import pytest

from advisor.answer.advice import recommend
from advisor.engine.search import Question
from advisor.engine.search.candidates import rented_parts
from advisor.engine.terms import Host, WeightStore
from advisor.inputs import catalog_of, take_snapshot, workload_of
from advisor.result import Option
from advisor.workload import parse
from tests.answer.processors import sell_sizes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
GIB, GB = 2.0**30, 1e9
VCPUS = (4, 16, 48, 96, 192)  # of the sizes of c7i, with 2 GiB each; the largest has two sockets
CHAT = {"input_tokens": 500, "output_tokens": 100, "requests_per_s": {"mean": 0.1, "peak": 0.3}}


def asked(**changes: Any) -> dict[str, Any]:
    return parse({"name": "one", "model": "meta-llama/Llama-3.1-8B", "traffic": CHAT, **changes})


def allowed(*chips: str, **more: Any) -> dict[str, Any]:
    return {"accelerators": {"allow": list(chips)}, "acquisition": ["rent"], **more}


def options(spec: dict[str, Any]) -> list[Option]:
    return list(recommend(spec, take_snapshot(spec)).recommendations)


@pytest.fixture(scope="module", autouse=True)
def c7i(frozen: None, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        sell_sizes("c7i", *VCPUS)


@pytest.fixture(scope="module")
def on_processors(c7i: None, django_db_blocker: Any) -> list[Option]:
    with django_db_blocker.unblock():
        return options(
            asked(
                slo={"tpot_ms_p95": 200},
                constraints=allowed("xeon-8480plus", frameworks={"allow": ["vllm"]}, providers={"allow": ["aws"]}),
            )
        )


def test_the_cache_of_a_processor_fits_into_its_instance(on_processors: list[Option]) -> None:
    """Before, an instance with 384 GiB was started with VLLM_CPU_KVCACHE_SPACE=3681."""
    spaces = {}
    for option in on_processors:
        assert option.host is not None and "memory_gib" not in option.host.assumed
        per_socket = option.host.memory_gib / option.host.sockets
        found = re.search(r"VLLM_CPU_KVCACHE_SPACE=(\d+)", option.launch.command)
        assert found is not None
        spaces[option.instance] = int(found[1])
        used = sum(gib for name, gib in option.memory.parts().items())
        assert 0 < int(found[1]) < used <= per_socket
    assert len(spaces) > 1 and all(space < 384 / 2 for space in spaces.values())


def test_a_part_of_a_socket_has_its_share_of_the_bandwidth_and_the_cores_that_are_left() -> None:
    spec = asked(constraints=allowed("xeon-8480plus", providers={"allow": ["aws"]}))
    catalog, workload = catalog_of(spec, take_snapshot(spec)), workload_of(spec)
    (chip,) = [a for a in catalog.accelerators if a.slug == "xeon-8480plus"]
    (quarter,) = [o for o in catalog.offers if o.instance == "c7i.12xlarge"]
    (part,) = [a for a in rented_parts(Question(workload, catalog), chip) if quarter.sells(a)]
    # 24 of the 48 cores of a socket, of which one is reserved: half of 8 channels of DDR5-4800; 96 GiB
    assert part.memory_bytes == 96 * GIB and part.memory_bytes_per_s == pytest.approx(307e9 / 2)
    assert (part.cores, part.chips_per_host, part.links) == (23, 1, ())
    assert part.flops_per_s["bf16"] == pytest.approx(chip.flops_per_s["bf16"] * 23 / 56)
    assert part.watts == pytest.approx(350 / 2) and not quarter.sells(chip)
    (whole,) = [o for o in catalog.offers if o.instance == "c7i.48xlarge"]
    assert whole.share is not None and (whole.share.sockets, whole.share.memory_bytes) == (2, 192 * GIB)


def test_no_rented_processor_has_the_memory_of_a_maximal_server() -> None:
    spec = asked(constraints=allowed("xeon-8480plus", "xeon-6980p", "epyc-9965"))
    catalog = catalog_of(spec, take_snapshot(spec))
    rented = [o for o in catalog.offers if o.share is not None]
    assert len(rented) > len(VCPUS) and len({o.provider for o in rented}) > 1
    for offer in rented:
        assert offer.share is not None and offer.host is not None
        assert offer.share.memory_bytes * offer.share.sockets == pytest.approx(offer.host.memory_bytes)
        assert offer.share.memory_bytes <= 1536 * GIB and offer.share.cores <= offer.share.socket_cores


def test_a_few_embeddings_do_not_cost_a_whole_server() -> None:
    """bge-m3 at a load of a few percent of a c7i.48xlarge, which is 8.568 USD an hour."""
    traffic = {"input_tokens": 256, "requests_per_s": {"mean": 0.5, "peak": 1}}
    spec = asked(
        kind="embedding", model="BAAI/bge-m3", traffic=traffic, slo={"e2e_ms_p95": 2000},
        constraints=allowed("xeon-8480plus"),
    )  # fmt: skip
    best = options(spec)[0]
    assert best.money is not None
    instances = next(p.usd_per_hour for p in best.money.parts if p.name == "instances")
    assert instances < 8.568 / 10 and best.host is not None and best.host.cores <= 8
    assert "of 48 cores" in best.accelerator_name


def test_unknown_figures_of_an_instance_are_assumed_and_named() -> None:
    spec = asked(constraints=allowed("h100-sxm"))
    offers = [o for o in catalog_of(spec, take_snapshot(spec)).offers if o.accelerator == "h100-sxm"]
    unknown = [o for o in offers if o.host is not None and "memory_bytes" in o.host.assumed]
    known = [o for o in offers if o.host is not None and not o.host.assumed]
    assert unknown and {"p5.4xlarge", "a3-highgpu-1g"} <= {o.instance for o in known}
    for offer in unknown:
        assert offer.host is not None
        assert offer.host.memory_bytes == pytest.approx(2.05 * offer.accelerators * 79.65 * GIB, rel=0.02)
    (p5,) = {o.host for o in known if o.instance == "p5.4xlarge" and o.term == "on_demand"}
    assert p5 is not None and (p5.local_disk_bytes, p5.network_bytes_per_s) == (3840 * GB, 12.5 * GB)
    assert (p5.memory_bytes, p5.sockets, p5.cores) == (256 * GIB, 1, 8)


STORE = WeightStore(
    hub_bytes_per_s=0.5 * GB, volume_bytes_per_s=0.25 * GB, volume_usd_per_byte_month=0.08 / GB, offload_fraction=0.5
)


def host(disk_gb: float, network_gbit_per_s: float) -> Host:
    return Host(
        memory_bytes=64 * GIB, cores=8, sockets=1, numa_nodes=1, local_disk_bytes=disk_gb * GB,
        network_bytes_per_s=network_gbit_per_s * GB / 8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("disk_gb", "gbit", "seconds", "usd"),
    [
        (1000, 100, 140 / 0.5, 0.0),  # the hub
        (1000, 2, 140 / 0.25, 0.0),  # the network
        (100, 100, 140 / 0.25, 11.2),  # the weights do not fit on the drives: a volume at 0.25 GB/s and 0.08 USD
    ],
)
def test_weights_arrive_at_the_rate_of_the_slowest_part(
    disk_gb: float, gbit: float, seconds: float, usd: float
) -> None:
    there = host(disk_gb, gbit)
    assert STORE.download_s(there, 140 * GB) == pytest.approx(seconds)
    assert STORE.volume_usd_per_month(there, 140 * GB) == pytest.approx(usd)


def test_an_option_says_where_its_weights_are_kept(on_processors: list[Option]) -> None:
    for option in on_processors:
        assert option.host is not None and option.host.weights_on == "network volume"
        assert option.host.volume_usd_per_month == pytest.approx(
            0.08 * (option.host.checkpoint_gb or 0) * option.instances, rel=1e-3
        )
        rate = min(0.52, (option.host.network_gbit_per_s) / 8)
        assert option.host.download_s == pytest.approx((option.host.checkpoint_gb or 0) / rate, rel=1e-3)
