"""Sizes of rented processors that the frozen catalog leaves out."""

import math

from catalog.models import InstanceType, Price


def sell_sizes(family: str, *vcpus: int) -> None:
    """More sizes of a family, `family.4xlarge` of 16 vCPUs, at the price and memory of the smallest for each vCPU."""
    price = Price.objects.get(instance=f"{family}.large", term="on_demand")
    facts = InstanceType.objects.get(instance=price.instance)
    usd_per_vcpu, gib_per_vcpu = (price.usd_per_hour or 0) / 2, (facts.host_memory_gib or 0) / 2
    for n in vcpus:
        price.pk = facts.pk = None
        price.instance = facts.instance = f"{family}.{n // 4}xlarge"
        price.vcpus = facts.vcpus = n
        price.host_memory_gib = facts.host_memory_gib = gib_per_vcpu * n
        price.usd_per_hour = usd_per_vcpu * n
        facts.cores = n // 2
        price.accelerators = facts.sockets = facts.numa_nodes = math.ceil(facts.cores / (facts.socket_cores or 1))
        price.save()
        facts.save()
