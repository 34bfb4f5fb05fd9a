"""The host around the chips: its power, and the servers and workstations that cards are bought for."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from advisor.engine.cost import Assumptions
from advisor.engine.terms import COMPUTER, SERVER, Host, SocketShare
from advisor.engine.terms import Accelerator as Chip
from advisor.inputs.snapshot import Snapshot
from catalog.loading.fixtures import PER_CHIP
from catalog.models import InstanceType

Json = dict[str, Any]
GIB, GB, GBIT = 2.0**30, 1e9, 1e9 / 8
FACTS = "vcpus cores sockets socket_cores numa_nodes host_memory_gib local_disk_gb network_gbit_per_s".split()
IN_PRICES = ("vcpus", "host_memory_gib")  # figures that price lists state
THREADS = 2  # vCPUs of a core, where the instance's cores are unknown
# assumptions for instances without figures of their own
MEMORY_RATIO, CORES, NETWORK = "host-memory-ratio", "host-cores-per-accelerator", "host-network-gbit-per-s"
RESERVED = "cpu-reserved-cores"
BOUGHT_DISK = "bought-host-disk-gb"
CARDS_PER_HOST = {SERVER: (1, 2, 4, 8)}
CARDS_PER_WORKSTATION = (1, 2, 4)


class BoughtHost(NamedTuple):
    """A host to buy: prices in USD with all its chips; `low_usd` and `high_usd` are 0 without a known range."""

    name: str
    accelerators: int
    usd: float
    watts_per_accelerator: float  # host power per chip
    chips_usd: float | None  # part of `usd` for the chips, if they are sold alone
    low_usd: float
    high_usd: float


def host_watts(chip: Chip, accelerators: int, known: Sequence[Json], a: Assumptions) -> float:
    """Host power per chip, W, from the unit nearest in size; without one, the default for this class of chip."""
    if not known or math.isnan(chip.watts):
        return usual_host_watts(chip, a)
    unit = min(known, key=lambda u: (abs(u["accelerators"] - accelerators), u["watts"]))
    return max(float(unit["watts"]) / unit["accelerators"] - chip.watts, 0.0)


def usual_host_watts(chip: Chip, a: Assumptions) -> float:
    """The default host power per chip, W, for a CPU, a PCIe card or a module in a server; 0 for a whole computer."""
    if chip.chassis == COMPUTER:
        return 0.0
    if chip.kind == "cpu":
        return a.socket_host_watts
    return a.card_host_watts if any(link.topology == "host" for link in chip.links) else a.host_watts_per_accelerator


def card_hosts(p: Json, chip: Chip, a: Assumptions, rows: Json, known: Sequence[Json]) -> list[BoughtHost]:
    """A host of each size for cards sold alone: a rack server for passively cooled cards, else a workstation.

    `p`: the price of the cards; `rows`: the assumptions with their ranges.
    """
    card = p["purchase_usd"] / p["accelerators"]
    low, high = (p.get(key, p["purchase_usd"]) / p["accelerators"] for key in ("purchase_low_usd", "purchase_high_usd"))
    sizes = CARDS_PER_HOST.get(chip.chassis, CARDS_PER_WORKSTATION)
    hosts = []
    for n in (n for n in sizes if n <= chip.chips_per_host):
        empty, watts = empty_host_usd(chip, n, a), empty_host_watts(chip, n, a) / n
        if any(u["accelerators"] == n for u in known):
            watts = host_watts(chip, n, [u for u in known if u["accelerators"] == n], a)
        cheap, dear = (empty_host_ratio(chip, n, rows, bound) for bound in ("low", "high"))
        name = f"{'GPU server' if chip.chassis == SERVER else 'workstation'} with {n} x {chip.name}"
        hosts.append(
            BoughtHost(
                name=f"{name} ({'server' if chip.chassis == SERVER else 'computer'} price estimated)",
                accelerators=n,
                usd=card * n + empty,
                watts_per_accelerator=watts,
                chips_usd=card * n,
                low_usd=low * n + empty * cheap,
                high_usd=high * n + empty * dear,
            )
        )
    return hosts


def empty_host_usd(chip: Chip, cards: int, a: Assumptions) -> float:
    """Price of the host without its cards, USD."""
    if chip.chassis == SERVER:
        return a.card_server_usd + cards * a.card_server_usd_per_card
    return a.small_host_usd


def empty_host_watts(chip: Chip, cards: int, a: Assumptions) -> float:
    """Power of the host without its cards, W."""
    return a.small_host_watts + (cards * a.card_server_watts_per_card if chip.chassis == SERVER else 0.0)


def empty_host_ratio(chip: Chip, cards: int, rows: Json, bound: str) -> float:
    """The low or high end of the host's price range over its default price."""
    keys = {"small-host-usd": 1}
    if chip.chassis == SERVER:
        keys = {"card-server-usd": 1, "card-server-usd-per-card": cards}
    usual = sum(rows[key]["value"] * n for key, n in keys.items())
    end = sum((rows[key].get(bound) or rows[key]["value"]) * n for key, n in keys.items())
    return float(end / usual) if usual else 1.0


def cooling_of(known: Sequence[Mapping[str, Any]], accelerators: int) -> str:
    """The cooling of units with this number of chips; empty if unknown."""
    kinds = {kind for u in known if u["accelerators"] == accelerators for kind in u.get("cooling", "").split(" or ")}
    return " or ".join(sorted(kinds - {""}))


# --- what an instance has besides its chips ---------------------------------------------------------------------


def instance_types(prices: Iterable[Json]) -> Json:
    """Figures of the instances in these prices, by `key_of`: known ones, else what the price list says."""
    wanted = {key_of(p["provider"], p["instance"]): p for p in prices}
    known = {key_of(i.provider, i.instance): i for i in InstanceType.objects.order_by("pk")}
    found: Json = {}
    for key, p in wanted.items():
        row = known.get(key)
        if row is not None:
            figures = {name: whole(x) for name in FACTS if (x := getattr(row, name)) is not None}
            found[key] = figures | {"source": row.source}
        elif stated := {name: whole(p[name]) for name in IN_PRICES if p.get(name)}:
            found[key] = stated | {"source": f"price list: {p['source']}"}
    return found


def whole(figure: float) -> float:
    """The figure without a decimal point if it has no decimals: shorter in a stored snapshot."""
    return int(figure) if figure == int(figure) else figure


def key_of(provider: str, instance: str) -> str:
    """The key of an instance in a snapshot."""
    return f"{provider}/{instance}"


def is_per_chip(p: Json) -> bool:
    """Whether the price is for one chip of a larger host or slice, according to its name or source."""
    return PER_CHIP in p["instance"] or "(per chip)" in p["instance"] or "per chip-hour" in p["source"]


def rented_host(p: Json, chip: Chip, snapshot: Snapshot) -> Host:
    """The host of a rented instance; figures without a source are derived from its chips and named in `assumed`."""
    known = snapshot.instances.get(key_of(p["provider"], p["instance"]), {})
    return _host(known, chip, p["accelerators"], snapshot.assumptions, known.get("source", ""))


def _host(known: Json, chip: Chip, accelerators: int, rows: Json, source: str) -> Host:
    cores = known.get("cores") or known.get("vcpus", 0) / THREADS or usual_cores(chip, accelerators, rows)
    sockets = known.get("sockets") or (accelerators if chip.kind == "cpu" else 1)
    assumed = {
        "cores": "cores" not in known and "vcpus" not in known,
        "sockets": "sockets" not in known,
        "numa_nodes": "numa_nodes" not in known,
        "memory_bytes": "host_memory_gib" not in known,
        "local_disk_bytes": "local_disk_gb" not in known,
        "network_bytes_per_s": "network_gbit_per_s" not in known,
    }
    memory_gib = known.get("host_memory_gib")
    return Host(
        memory_bytes=memory_gib * GIB if memory_gib else usual_memory_bytes(chip, accelerators, cores, rows),
        cores=max(int(cores), 1),
        sockets=sockets,
        numa_nodes=known.get("numa_nodes") or sockets,
        local_disk_bytes=known.get("local_disk_gb", 0.0) * GB,
        network_bytes_per_s=(known.get("network_gbit_per_s") or rows[NETWORK]["value"]) * GBIT,
        assumed=tuple(name for name, missing in assumed.items() if missing),
        source=source,
    )


def usual_cores(chip: Chip, accelerators: int, rows: Json) -> float:
    """Cores of a host with this many chips, if no source states them."""
    return float(accelerators * (chip.cores if chip.kind == "cpu" else rows[CORES]["value"]))


def usual_memory_bytes(chip: Chip, accelerators: int, cores: float, rows: Json) -> float:
    """Memory of a host with this many chips, if no source states it: of a processor the share of its cores."""
    if chip.kind == "cpu":
        return min(cores / (chip.cores * accelerators), 1.0) * chip.memory_bytes * accelerators
    return float(rows[MEMORY_RATIO]["value"]) * chip.memory_bytes * accelerators


def bought_host(chip: Chip, accelerators: int, rows: Json) -> Host:
    """The host of bought chips, all of it assumed."""
    host = _host({"local_disk_gb": rows[BOUGHT_DISK]["value"]}, chip, accelerators, rows, "assumed: a usual host")
    host = replace(host, assumed=tuple(sorted({*host.assumed, "local_disk_bytes"})))
    return replace(host, memory_bytes=chip.memory_bytes * accelerators) if chip.chassis == COMPUTER else host


def socket_share(p: Json, chip: Chip, host: Host, snapshot: Snapshot) -> SocketShare:
    """The part of each socket that the instance has."""
    known = snapshot.instances.get(key_of(p["provider"], p["instance"]), {})
    each = -(-host.cores // host.sockets)
    return SocketShare(
        cores=each,
        socket_cores=max(known.get("socket_cores") or chip.cores, each),
        sockets=host.sockets,
        memory_bytes=host.memory_bytes / host.sockets,
        reserved_cores=int(snapshot.assumptions[RESERVED]["value"]),
    )
