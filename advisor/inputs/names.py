"""The catalog's names as people write them, one table for each kind: what stands for what, and what is ambiguous."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from django.db.models import Q, QuerySet

from advisor.inputs.read_once import once
from advisor.workload import Names, fold, names_of, unnamed
from advisor.workload import named as with_name
from catalog.loading.places import places, synonyms
from catalog.models import Accelerator, Framework, Organisation, Price, QuantizationMethod, Region, ServedModel

Json = dict[str, Any]


def prices_seen_by(organisation: Organisation | None) -> QuerySet[Price]:
    """The public prices, and the own prices of this organization alone."""
    return Price.objects.filter(Q(organisation=None) | Q(organisation=organisation))


def with_catalog_names(spec: Mapping[str, Any], organisation: Organisation | None = None) -> Json:
    """The workload with the catalog's own names; unknown and ambiguous ones stay, for check_catalog to report.

    Providers and regions include those of the organization's own prices, and models its own.

    A short name of several chips stands for all of them in allow and deny lists (H100: SXM, PCIe, NVL).
    """
    named = unnamed(spec)
    if isinstance(spec["model"], str):
        named["model"] = one(spec["model"], models(organisation))
    if (spec.get("finetuning") or {}).get("reward_model"):
        reward = one(spec["finetuning"]["reward_model"], models(organisation))
        named["finetuning"] = {**spec["finetuning"], "reward_model": reward}
    constraints, chips = dict(spec["constraints"]), accelerators()
    prices = prices_seen_by(organisation)
    known = {
        "accelerators": chips,
        "vendors": plain(Accelerator.objects.values_list("vendor", flat=True)),
        "providers": plain(prices.values_list("provider", flat=True)),
        "regions": plain([*prices.values_list("region", flat=True), *Region.objects.values_list("slug", flat=True)]),
        "frameworks": frameworks(),
        "formats": formats(),
    }
    for field, names in known.items():
        lists = spec["constraints"][field]
        meant = {side: [each for name in given for each in listed(name, names, field)] for side, given in lists.items()}
        constraints[field] = {side: list(dict.fromkeys(given)) for side, given in meant.items()}
    named["constraints"] = constraints
    for field in ("owned", "inventory"):
        counts: Counter[str] = Counter()  # two spellings of one chip add up
        for name, count in spec[field].items():
            counts[one(name, chips)] += count
        named[field] = dict(counts)
    given = spec.get("usd_per_accelerator_hour", {})
    named["usd_per_accelerator_hour"] = {each: usd for name, usd in given.items() for each in all_of(name, chips)}
    if spec.get("workloads"):
        # a part that is still a path is reported by check_catalog
        parts = spec["workloads"]
        named["workloads"] = [with_catalog_names(p, organisation) if isinstance(p, Mapping) else p for p in parts]
    return with_name(named)


def listed(written: str, names: Names, field: str) -> list[str]:
    """The names that an entry of an allow or deny list stands for. Countries and areas go first: US is the country."""
    place = areas().get(fold(written).removesuffix("-only"), "") if field == "regions" else ""
    return [place] if place else all_of(written, names)


@cache
def areas() -> dict[str, str]:
    """Countries and areas by each of their names."""
    known = {fold(place): place for place in places()}
    return known | {fold(other): place for other, place in synonyms().items()}


def all_of(written: str, names: Names) -> list[str]:
    """The names that the text stands for, several for a series such as H100; itself where it stands for none."""
    found = names.meant_by(written)
    series = len(found) == 1 or fold(written) in names.spellings or any(each.isdigit() for each in written)
    return found if found and series else [written]


def one(written: str, names: Names) -> str:
    """The only name that the text stands for; itself where there is none or more than one."""
    found = names.meant_by(written)
    return found[0] if len(found) == 1 else written


def plain(names: Iterable[str]) -> Names:
    """Names that are written in full, in any case."""
    return names_of(dict.fromkeys(names, ()), partly=False)


def accelerators() -> Names:
    """Slugs by slug, display name, and any words of these, of the memory and of the form factor."""
    rows = Accelerator.objects.values_list("slug", "name", "memory_type", "form_factor", "memory_gib")
    return names_of({slug: (name, memory, form, f"{size:.0f}gb") for slug, name, memory, form, size in rows})


@once()
def models(organisation: Organisation | None = None) -> Names:
    """Hugging Face IDs by ID, by slug, by the part after the slash, and by the words that it has in this order.

    The repositories of a model's conversions stand for it too.
    """
    rows = ServedModel.objects.seen_by(organisation).values_list("hf_id", "slug", "checkpoints")
    taken = {hf_id for hf_id, _, _ in rows}
    spelled = {
        hf_id: (hf_id.rpartition("/")[2], slug, *(c["hf_id"] for c in checkpoints.get("conversions", ())))
        for hf_id, slug, checkpoints in rows
    }
    return names_of(
        {name: tuple(o for o in others if o not in taken) for name, others in spelled.items()}, ordered=True
    )


def frameworks() -> Names:
    """Slugs by slug, display name and aliases."""
    rows = Framework.objects.all()
    return names_of({row.slug: (row.name, *row.settings.get("aliases", ())) for row in rows}, partly=False)


def formats() -> Names:
    return names_of(
        {slug: (name,) for slug, name in QuantizationMethod.objects.values_list("slug", "name")}, partly=False
    )
