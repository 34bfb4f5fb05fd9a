"""Which hosts hold which replicas, and what is left when hosts are lost.

A host is what fails at once: a server, a rented instance, a Mac, or one tray or machine of a rack or slice that is sold
whole. A replica that spans several hosts stops with any of them. Replicas are spread evenly over single hosts.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.terms.machines.hardware import Accelerator
from advisor.engine.terms.machines.offer import OWNED, Offer

SPARE_HOSTS = 1  # of the default margin


class Packing(NamedTuple):
    """How replicas of one size lie in the instances of one size; numbers or arrays of equal shape."""

    each: Any  # instances of one replica
    held: Any  # replicas of one instance; one of the two is 1
    hosts: Any = 1  # of one instance
    stopped: Any = 1  # replicas that stop with one host, at most
    spare: Any = 0  # hosts that the default margin adds on these instances (SPARE_HOSTS)


def host_chips(a: Accelerator, o: Offer) -> int:
    """Chips that fail together: those of the instance, or of one host of a rack or slice.

    Only chips that fast links join beyond a host are sold in instances of several hosts; any other instance, however
    large, is one machine.
    """
    several = a.links and a.links[0].chips > a.chips_per_host
    return a.chips_per_host if several and o.accelerators > a.chips_per_host else o.accelerators


@lru_cache(maxsize=4096)
def packing(
    replica_chips: int, offer_chips: int, stages: int = 1, chips_of_host: int = 0, spare_hosts: int = 0
) -> Packing:
    """Replicas of so many chips in instances of `offer_chips`; chips_of_host: 0 if an instance is one host.

    A pipeline stage never spans two instances unless it is larger than one.
    """
    stage_chips = replica_chips // stages
    if stage_chips > offer_chips:  # a slice or rack sold by the host
        each, held = math.ceil(stage_chips / offer_chips) * stages, 1
    else:
        stages_held = offer_chips // stage_chips
        each, held = (math.ceil(stages / stages_held), 1) if stages > stages_held else (1, stages_held // stages)
    if not chips_of_host or chips_of_host >= offer_chips:
        return Packing(each, held, 1, held, spare_hosts)
    stopped = min(_overlap(replica_chips, chips_of_host), held)
    return Packing(each, held, math.ceil(offer_chips / chips_of_host), stopped, spare_hosts)


def _overlap(replica_chips: int, chips_of_host: int) -> int:
    """The most replicas, one after the other on the chips of a rack, that have a chip in one host."""
    starts = range(0, math.lcm(replica_chips, chips_of_host), chips_of_host)
    return max((start + chips_of_host - 1) // replica_chips - start // replica_chips + 1 for start in starts)


def instances_packed(replicas: Any, p: Packing) -> Any:
    """Whole instances for these replicas, without spares."""
    return np.where(np.greater(p.each, 1), replicas * p.each, np.ceil(replicas / p.held))


def replicas_left(replicas: Any, instances: Any, p: Packing, hosts_lost: int = 1) -> Any:
    """Replicas that still run, whichever hosts are lost.

    Single hosts hold as equal numbers as possible, and the fullest are lost; hosts of a rack stop as many as they can.
    """
    instances = np.maximum(instances, 1)
    some, more = np.divmod(replicas, instances)
    spread = hosts_lost * some + np.minimum(more, hosts_lost)
    alone = np.equal(p.each, 1) & np.equal(p.hosts, 1)
    return np.maximum(replicas - np.where(alone, spread, hosts_lost * np.asarray(p.stopped)), 0)


def spare_hosts(a: Accelerator, o: Offer) -> int:
    """Hosts that the default margin adds: one of data-center machines, none of devices and of what is already owned.

    Whoever owns machines has paid for them: a further one is a purchase that only the planner can ask for.
    """
    device = a.market == "consumer" or a.chassis in ("computer", "workstation")
    return 0 if device or o.term == OWNED or o.held_instances else SPARE_HOSTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Redundancy:
    """What a deployment must survive."""

    hosts: int = 0  # that may be lost while the limits hold
    doubled: bool = False  # everything once more, on hosts of its own
    by_offer: bool = False  # the default margin instead: as many spare hosts as each packing says

    def __bool__(self) -> bool:
        return self.doubled or self.hosts > 0 or self.by_offer

    def lost(self, p: Packing) -> Any:
        """Hosts that may be lost on these instances."""
        return p.spare if self.by_offer else self.hosts

    def instances(self, carrying: Any, p: Packing) -> Any:
        """Whole instances with which `carrying` replicas are left; 0 for none."""
        if self.doubled or not self:
            return (2 if self.doubled else 1) * instances_packed(carrying, p)
        spares = np.where(np.greater(carrying, 0), np.asarray(self.lost(p)) * np.asarray(p.stopped), 0)
        return instances_packed(carrying + spares, p)

    def replicas(self, carrying: Any, p: Packing) -> Any:
        """The fewest replicas on those instances of which `carrying` are left; 0 for none."""
        if self.doubled or not self:
            return carrying * (2 if self.doubled else 1)
        hosts = np.asarray(self.lost(p))
        rest = np.maximum(self.instances(carrying, p) - hosts, 1)
        alone = np.equal(p.each, 1) & np.equal(p.hosts, 1)
        each = np.where(alone, np.ceil(np.asarray(carrying) / rest), p.stopped)
        return np.where(np.greater(carrying, 0), carrying + hosts * each, 0)
