"""The sections of the detail pages: figures of one catalog row, grouped by source."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from advisor.engine.network import (
    Block,
    Model,
    active_parameters,
    block_parameters,
    cross_kv_elements,
    embedding_parameters,
    from_shape,
    kv_elements_per_token,
    parameters,
    state_elements,
)
from advisor.engine.terms import amount_digits
from catalog.details import shapes
from catalog.details.maturity import maturity, rule_text
from catalog.loading.fixtures import TERMS
from catalog.loading.frameworks import BEHAVIOR, FACTS, OVERHEAD, SCHEDULING, SUPPORT
from catalog.models import Accelerator, Framework, QuantizationMethod, Region, ServedModel, Unit
from catalog.pricing.derived import Spread
from catalog.texts import localized

UNITS = {
    "bits_per_weight": "bits",
    "runtime_gib": "GiB",
    "memory_fraction": "of memory",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Figures with the same source: pairs of name and value, in page order."""

    title: str
    facts: tuple[tuple[str, str], ...]
    source: dict[str, str] | None = None


def text(value: Any, unit: str = "") -> str:
    """A value as display text: thousands separators, comma-separated lists, yes or no, a dash for no value."""
    if value in (None, "", [], ()):
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{figure(value) if isinstance(value, int | float) else value} {unit}".strip()


def figure(value: float) -> str:
    """A number with thousands separators and without a trailing .0."""
    return localized(f"{int(value) if value == int(value) else value:,}")


def section(title: str, source: dict[str, str] | None, *facts: tuple[str, Any, str]) -> Section:
    shown = tuple((name, text(value, unit)) for name, value, unit in facts if value not in (None, "", [], {}))
    return Section(title=title, facts=shown, source=source)


def accelerator(chip: Accelerator) -> list[Section]:
    """The sections of an accelerator page."""
    sources = chip.sources
    links = [
        (link["name"], f"{text(link['gb_per_s'])} GB/s, {text(link['chips'])} chips, {link['topology']}", "")
        for link in chip.links
    ]
    rates = [(dtype.upper(), rate, "TFLOP/s") for dtype, rate in chip.dense_tflops.items()]
    return [
        section(
            "Memory",
            sources.get("memory"),
            ("Capacity", chip.memory_gib, "GiB"),
            ("Bandwidth", chip.memory_gb_per_s, "GB/s"),
            ("Type", chip.memory_type, ""),
        ),
        section("Dense rates", sources.get("dense_tflops"), *rates),
        section(
            "Chip",
            sources.get("chip"),
            ("Architecture", chip.architecture, ""),
            ("Cores", chip.cores, ""),
            ("SRAM", chip.sram_mib, "MiB"),
            ("Clock", chip.clock_ghz, "GHz"),
        ),
        section("Links, one direction", sources.get("links"), *links),
        section(
            "Host",
            sources.get("host"),
            ("Chips per host", chip.chips_per_host, ""),
            ("PCI Express", chip.pcie_gb_per_s, "GB/s"),
        ),
        section("Hardware partitions", sources.get("partitions"), *partitions(chip.partitions)),
        section("Power", sources.get("power"), ("TDP", chip.tdp_watts, "W"), ("Idle", chip.idle_watts, "W")),
        section("Price", sources.get("price"), ("Typical", chip.typical_price_usd, "USD")),
        section(
            "Software",
            sources.get("software"),
            ("Stacks", chip.stacks, ""),
            *((key.replace("_", " ").capitalize(), str(value), "") for key, value in chip.software.items()),
            ("Available as", chip.bought_as, ""),
            ("Runs an open framework", "yes" if chip.served else f"no: {chip.not_served_reason}", ""),
        ),
    ]


def partitions(ways: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The hardware partition profiles (MIG and the like) of a chip."""
    return [
        (
            f"{ways['way']} {p['name']}",
            f"{p['instances']} instances of {figure(p['gib'])} GiB and {p['cores']} cores, "
            f"{p['compute_slices']}/{ways['compute_slices']} of the compute, "
            f"{p['memory_slices']}/{ways['memory_slices']} of the memory",
            "",
        )
        for p in ways.get("profiles", [])
    ]


def served_model(row: ServedModel) -> list[Section]:
    """The sections of a model page: published figures, and figures computed from its shape."""
    model = from_shape(row.slug, row.shape)
    computed = (
        ("Parameters", parameters(model), ""),
        ("Active parameters", active_parameters(model), ""),
        ("Embedding and output head parameters", embedding_parameters(model), ""),
        ("KV cache per token", 2 * kv_elements_per_token(model), "bytes in 16 bits"),
        ("Cross-attention cache per input token", 2 * cross_kv_elements(model, 1) or None, "bytes in 16 bits"),
        ("Maximum encoder input", model.source_tokens or None, "tokens"),
        ("State per sequence", 2 * state_elements(model) or None, "bytes in 16 bits"),
    )
    return [
        section(
            "Published",
            row.sources.get("published"),
            ("Parameters", row.published_parameters, ""),
            ("Active parameters", row.published_active_parameters, ""),
            ("Dtype", row.native_dtype, ""),
            ("Context", row.max_context_tokens, "tokens"),
            ("License", row.licence, ""),
        ),
        section("Computed from the shape", None, *computed),
        section("Shape", row.sources.get("shape"), *shape_facts(model)),
    ]


def shape_facts(model: Model) -> list[tuple[str, Any, str]]:
    """The width, the vocabulary and the layers of a model."""
    facts: list[tuple[str, Any, str]] = [("Width", model.hidden, ""), ("Vocabulary", model.vocab, "")]
    for block in model.blocks:
        each = block_parameters(model, block) / 1e6
        side = " of the encoder" if block.stage == "encoder" else ""
        facts.append((f"{block.count} layers{side}", f"{block_text(block)}; {localized(f'{each:,.1f}')} M each", ""))
    return facts


def block_text(block: Block) -> str:
    """The mixer and the feed-forward part of a layer, with their sizes."""
    parts = []
    for part in (block.mixer, block.ffn):
        if part is not None:
            sizes = [f"{name} {value}" for name, value in _non_default_fields(part)]
            parts.append(f"{type(part).__name__} ({', '.join(sizes)})")
    return " + ".join(parts)


def _non_default_fields(part: Any) -> list[tuple[str, Any]]:
    shown = {name: getattr(part, name) for name in part.__dataclass_fields__}
    return [
        (name.replace("_", " "), value if value is not True else "yes")
        for name, value in shown.items()
        if value not in (None, 0, False, "") and value != part.__dataclass_fields__[name].default
    ]


def shape_costs(row: ServedModel) -> shapes.Costs:
    """What the shape of a model costs on each chip family (padding and splits)."""
    return shapes.costs(from_shape(row.slug, row.shape))


def framework(row: Framework) -> list[Section]:
    """The sections of a framework page."""
    titles = {
        "support": ("Runs", (*SUPPORT, "hardware")),
        "scheduling": ("Scheduling", SCHEDULING),
        "overhead": ("Costs", OVERHEAD),
    }
    level = maturity(row)
    facts = section(
        "Facts",
        row.sources.get("facts"),
        *settings(row, FACTS),
        ("Maturity", f"{level.level}: {level.reason}", ""),
        ("Rule", rule_text(), ""),
    )
    parts = [section(title, row.sources.get(part), *settings(row, keys)) for part, (title, keys) in titles.items()]
    for key, title in RULES.items():
        parts.append(section(title, None, *map(rule_fact, row.settings.get(key, []))))
    host_times = row.settings.get("host_times", {})
    times = [(name.replace("_", " ").capitalize(), value, "") for name, value in host_times.items()]
    parts.append(section("Host times", row.sources.get("host_times"), *times))
    parts.append(section("Behavior", row.sources.get("behavior"), *settings(row, BEHAVIOR)))
    parts.append(section("Launch", row.sources.get("launch"), *launch_facts(row.settings.get("launch"))))
    if reason := row.settings.get("not_started_reason"):
        parts.append(section("Not started", row.sources.get("not_started"), ("Reason", reason, "")))
    return [facts, *parts]


RULES = {"weights": "Weight formats", "caches": "Formats of the KV cache"}
LAYERS = {"dense": "models without experts", "experts": "expert layers"}


def rule_fact(rule: dict[str, Any]) -> tuple[str, str, str]:
    """Formats, and where the source says they work."""
    chips = ", ".join(rule.get("chips", [])) or "all its chips"
    limits = [
        f"not {', '.join(rule['not_chips'])}" if rule.get("not_chips") else "",
        LAYERS.get(rule.get("layers", ""), ""),
        f"models with {', '.join(rule['mixers'])} layers only" if rule.get("mixers") else "",
        "weight-only: converted to 16 bits before the multiply" if rule.get("weight_only") else "",
    ]
    where = "; ".join(filter(None, (chips, *limits)))
    return ", ".join(rule["formats"]), f"{where} ({rule['source']}; {rule['basis']}, {rule['as_of']})", ""


def launch_facts(launch: dict[str, Any] | None) -> list[tuple[str, Any, str]]:
    """How a framework is installed and started, and the template of its command."""
    if not launch:
        return [("Launch command available", "no", "")]
    rest = {key: value for key, value in launch.items() if key != "template"}
    facts = [(key.replace("_", " ").capitalize(), mapping_text(value), "") for key, value in rest.items()]
    parts = launch["template"]["command"]
    return [*facts, ("Command", " ".join(command_part(part) for part in parts), "")]


def mapping_text(value: Any) -> Any:
    """A mapping as text; other values unchanged."""
    return ", ".join(f"{key}: {name}" for key, name in value.items()) if isinstance(value, dict) else value


def command_part(part: Any) -> str:
    """A part of a command template; optional parts are in brackets with their conditions."""
    if isinstance(part, str):
        return part
    when = part.get("when", [])
    return f"[if {when if isinstance(when, str) else ' and '.join(when)}: {part['add']}]"


def unit(row: Unit) -> list[Section]:
    """The sections of a unit page: contents, power, price, lead time."""
    low_high = f"{text(row.price_usd_min)} to {text(row.price_usd_max)}" if row.price_usd_min else None
    return [
        section(
            "Contents",
            row.sources.get("contents"),
            ("Kind", row.kind, ""),
            ("Accelerator", row.accelerator.name, ""),
            ("Accelerators", row.accelerators, ""),
            ("Hosts", row.instances, ""),
            ("Shape", row.shape, ""),
            ("Network per chip", row.network_gb_per_s, "GB/s, one direction"),
        ),
        section("Power and cooling", row.sources.get("power"), ("Power", row.watts, "W"), ("Cooling", row.cooling, "")),
        section("Price", row.sources.get("price"), ("Price", row.price_usd, "USD"), ("Price range", low_high, "USD")),
        section("Lead time", row.sources.get("lead_time"), ("Lead time", row.lead_time, "")),
    ]


def region(row: Region) -> list[Section]:
    """The sections of a region page: electricity, grid carbon, PUE, colocation."""
    return [
        section("Electricity", row.sources.get("electricity"), ("Price", row.electricity_usd_per_kwh, "USD/kWh")),
        section("Grid", row.sources.get("grid"), ("Carbon", row.grid_kgco2e_per_kwh, "kgCO2e/kWh")),
        section("Building", row.sources.get("pue"), ("PUE", row.pue, "")),
        section(
            "Colocation", row.sources.get("colocation"), ("Price", row.colocation_usd_per_kw_month, "USD/kW per month")
        ),
    ]


COMPARED: tuple[tuple[str, str, str], ...] = (
    ("Vendor", "vendor", ""),
    ("Year", "release_year", ""),
    ("Form", "form_factor", ""),
    ("Memory, GiB", "memory_gib", "more"),
    ("Bandwidth, GB/s", "memory_gb_per_s", "more"),
    ("BF16 or FP16, TFLOP/s", "bf16_tflops", "more"),
    ("FP8, TFLOP/s", "fp8_tflops", "more"),
    ("TDP, W", "tdp_watts", "less"),
    ("TFLOPS/W", "tflops_per_watt", "more"),
    ("FLOP:byte", "flops_per_byte", ""),
    ("Lowest USD/h", "usd_per_hour_min", "less"),
    ("GB/s per USD/h", "gb_per_s_per_usd_hour", "more"),
    ("USD per GiB, purchased", "usd_per_gib", "less"),
    ("Chips per host", "chips_per_host", ""),
    ("Stacks", "stacks", ""),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One row of a comparison: for each chip its value and whether it is the best one."""

    title: str
    cells: tuple[tuple[str, bool], ...]

    @property
    def differs(self) -> bool:
        return len({text for text, _ in self.cells}) > 1


def comparison(chips: list[Any], prices: dict[Any, dict[str, Spread]]) -> list[Compared]:
    """The rows of a comparison. `prices`: by chip and term."""
    rows = [
        compared(title, [getattr(chip, name) for chip in chips], comparison_text, better)
        for title, name, better in COMPARED
    ]
    rows.append(compared("Links, one direction", [links_text(chip) for chip in chips], str, ""))
    terms = sorted({term for of_chip in prices.values() for term in of_chip}, key=term_place)
    for term in terms:
        spreads = [prices[chip.pk].get(term) for chip in chips]
        title = f"{term.replace('_', ' ')}, USD" + ("" if term.startswith("purchase") else "/h per chip")
        cells = [spread_text(each) for each in spreads]
        best = best_of([each and each.low_usd for each in spreads], "less")
        rows.append(Compared(title=title, cells=tuple(zip(cells, best, strict=True))))
    return rows


def compared(title: str, values: list[Any], written: Callable[[Any], str], better: str) -> Compared:
    return Compared(title=title, cells=tuple(zip(map(written, values), best_of(values, better), strict=True)))


def best_of(values: list[Any], better: str) -> list[bool]:
    """Which values are the best, more or less; none if they are equal or there is no better."""
    known = [value for value in values if value is not None] if better else []
    if len(set(known)) < 2:
        return [False] * len(values)
    best = (max if better == "more" else min)(known)
    return [value == best for value in values]


def term_place(term: str) -> tuple[int, str]:
    """Terms in the order of TERMS; kinds of purchases by name."""
    return TERMS.index(term.partition(",")[0]), term


def spread_text(each: Spread | None) -> str:
    """The lowest and the median price, and how many offers there are."""
    if each is None:
        return "–"
    offers = f"{each.offers} offer{'' if each.offers == 1 else 's'}"
    low, median = localized(amount_digits(each.low_usd)), localized(amount_digits(each.median_usd))
    return f"{low} ({offers})" if each.offers == 1 else f"from {low}, median {median} ({offers})"


def comparison_text(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    return text(round(value, 3 if value < 100 else 1) if isinstance(value, float) else value)


def links_text(chip: Accelerator) -> str:
    return (
        "; ".join(f"{link['name']} {text(link['gb_per_s'])} GB/s to {link['chips']} chips" for link in chip.links)
        or "–"
    )


def quantization(row: QuantizationMethod) -> list[Section]:
    """The section of a quantization page: format and effect on quality."""
    return [section("Method", row.sources.get("method"), *settings(row, row.settings))]


def settings(row: Framework | QuantizationMethod, keys: Iterable[str]) -> list[tuple[str, Any, str]]:
    return [(key.replace("_", " ").capitalize(), row.settings.get(key), UNITS.get(key, "")) for key in keys]
