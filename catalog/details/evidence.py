"""The evidence on an accelerator page: supported formats, frameworks, measured rates, and changes of the row."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from advisor.engine.terms import SupportRule, rules_of
from catalog.models import Accelerator, Calibration, Framework, QuantizationMethod

SIXTEEN_BIT = ("bf16", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """How a chip supports one weight format."""

    slug: str
    name: str
    support: str  # native | emulated
    compute_dtype: str


def formats(chip: Accelerator) -> list[Format]:
    """The weight formats that some framework loads on a chip, native ones first."""
    found: dict[str, Format] = {}
    for each in frameworks(chip):
        for loaded in each.formats:
            if loaded.slug not in found or loaded.support == "native":
                found[loaded.slug] = loaded
    return sorted(found.values(), key=lambda each: (each.support != "native", each.name))


def format_of(row: QuantizationMethod, rule: SupportRule, chip: Accelerator) -> Format | None:
    """Native: the chip computes in the stored dtype. Emulated: in a wider dtype. None: it cannot compute in it."""
    method, rates = row.settings, chip.dense_tflops
    compute = "bf16" if rule.weight_only else method["activations_dtype"]
    if method["applies_to"] != "weights" or not computes_in(compute, rates):
        return None
    weight_only = rule.weight_only or method.get("weight_only")
    native = not weight_only and int(method["bits_per_weight"]) == width_bits(compute)
    support = "native" if native else "emulated"
    return Format(slug=row.slug, name=row.name, support=support, compute_dtype=compute)


def computes_in(dtype: str, rates: dict[str, float]) -> bool:
    """Whether a chip has a rate in this dtype. BF16 and FP16 count as the same."""
    return bool(rates.get(dtype) or (dtype in SIXTEEN_BIT and any(rates.get(each) for each in SIXTEEN_BIT)))


def width_bits(dtype: str) -> int:
    """The width of a dtype in bits: 4 for fp4, 16 for bf16."""
    return int("".join(c for c in dtype if c.isdigit()) or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkOnChip:
    """A framework version that runs on a chip, and the formats it loads there."""

    row: Framework
    stacks: str
    formats: list[Format]

    @property
    def native(self) -> list[str]:
        return [each.slug for each in self.formats if each.support == "native"]

    @property
    def emulated(self) -> list[str]:
        return [each.slug for each in self.formats if each.support == "emulated"]


def frameworks(chip: Accelerator) -> list[FrameworkOnChip]:
    """The frameworks that run on a chip: they share a stack with it and support its vendor and kind."""
    methods = {row.slug: row for row in QuantizationMethod.objects.all()}
    names = (chip.slug, chip.family.replace(" ", "-"), *chip.stacks)
    running = []
    for row in Framework.objects.all():
        support = row.settings
        stacks = sorted(set(support["stacks"]) & set(chip.stacks))
        if stacks and chip.vendor in support["vendors"] and chip.kind in support["kinds"]:
            rules = [rule for rule in rules_of(support, "weights") if rule.covers(names)]
            pairs = [(slug, rule) for rule in rules for slug in rule.formats if slug in methods]
            loaded = [format_of(methods[slug], rule, chip) for slug, rule in pairs]
            unique = {each.slug: each for each in reversed(loaded) if each}  # the first rule decides
            running.append(
                FrameworkOnChip(row=row, stacks=", ".join(stacks), formats=list(unique.values())[::-1])
            )  # fmt: skip
    return running


@dataclass(frozen=True, kw_only=True, slots=True)
class Achieved:
    """An achieved rate next to its datasheet peak, both in `unit`."""

    what: str
    achieved: float
    unit: str
    datasheet: float | None
    basis: str
    conditions: str
    source: str
    as_of: date

    @property
    def share_percent(self) -> float | None:
        return self.achieved / self.datasheet * 100 if self.datasheet else None


FITTED = (  # (value of a calibration, name, the peak that it is a fraction of, unit)
    ("memory_fraction", "memory read", "memory", "GB/s"),
    ("matmul_16_fraction", "matrix multiply, 16 bits", "bf16", "TFLOP/s"),
    ("matmul_8_fraction", "matrix multiply, 8 bits", "fp8", "TFLOP/s"),
    ("matmul_4_fraction", "matrix multiply, 4 bits", "fp4", "TFLOP/s"),
)


def achieved(chip: Accelerator) -> list[Achieved]:
    """Rates measured on this chip, then rates fitted to it, its family or its kind."""
    return [*measured(chip), *fitted(chip)]


def measured(chip: Accelerator) -> Iterator[Achieved]:
    for row in chip.benchmarks.order_by("what", "-value"):
        yield Achieved(
            what=row.what,
            achieved=row.value,
            unit=row.unit,
            datasheet=datasheet(chip, "memory" if row.unit == "GB/s" else row.what.split()[-1]),
            basis="measured",
            conditions=row.conditions,
            source=row.source,
            as_of=row.as_of,
        )


def fitted(chip: Accelerator) -> Iterator[Achieved]:
    """Each fitted rate from the newest calibration with the narrowest scope that has it."""
    scopes = (f"accelerator:{chip.slug}", f"family:{chip.family.replace(' ', '-')}", f"kind:{chip.kind}", "default")
    newest: dict[str, Calibration] = {}
    for row in Calibration.objects.filter(name__in=scopes).order_by("created_at", "pk"):
        newest[row.name] = row
    for key, what, peak_name, unit in FITTED:
        peak = datasheet(chip, peak_name)
        narrowest = [newest[name] for name in scopes if name in newest and key in newest[name].values]
        if not narrowest or peak is None:
            continue
        row = narrowest[0]
        yield Achieved(
            what=what,
            achieved=row.values[key] * peak,
            unit=unit,
            datasheet=peak,
            basis=row.basis if row.name == scopes[0] or row.basis != "measured" else "relative",
            conditions=f"best case of the fit, from {row.name}",
            source=row.fitted_on,
            as_of=row.as_of,
        )


def datasheet(chip: Accelerator, peak_name: str) -> float | None:
    """The datasheet peak: GB/s for "memory", else TFLOP/s of a dtype. None without one."""
    if peak_name == "memory":
        return chip.memory_gb_per_s
    rates = chip.dense_tflops
    substitute = {"bf16": "fp16", "fp8": "int8"}.get(peak_name, "")
    peak = rates.get(peak_name) or rates.get(substitute)
    return float(peak) if peak else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One edited column: before and after."""

    when: Any
    who: str
    what: str
    before: str
    after: str


def changes(row: Any, limit: int = 50) -> list[Change]:
    """The change history of a row, newest first."""
    records = list(row.history.select_related("history_user").order_by("-history_date", "-history_id")[: limit + 1])
    rows = []
    for newer, older in zip(records, [*records[1:], None], strict=True):
        who = str(newer.history_user or newer.history_change_reason or "unknown")
        if older is None:
            event = "first loaded" if newer.history_type == "+" else "oldest record"
            rows.append(Change(when=newer.history_date, who=who, what=event, before="", after=""))
        else:
            rows += [
                Change(
                    when=newer.history_date, who=who, what=each.field.replace("_", " "), before=each.old, after=each.new
                )
                for each in differences(newer, older)
            ]
    return rows[:limit]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs between two records."""

    field: str
    old: str
    new: str


def differences(newer: Any, older: Any) -> Iterator[Difference]:
    """The fields that differ between two records; for a JSON field, its keys that differ."""
    for change in newer.diff_against(older).changes:
        if isinstance(change.old, dict) and isinstance(change.new, dict):
            for key in sorted({*change.old, *change.new}):
                if change.old.get(key) != change.new.get(key):
                    yield Difference(
                        f"{change.field} {key}", str(change.old.get(key, "–")), str(change.new.get(key, "–"))
                    )
        else:
            yield Difference(change.field, str(change.old), str(change.new))
