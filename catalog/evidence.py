"""What is known beside the data sheet: which frameworks run, in which formats, what was measured, what changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from catalog.models import Accelerator, Calibration, Framework, QuantizationMethod

SIXTEEN = ("bf16", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """How a chip handles one way to store weights."""

    slug: str
    name: str
    how: str  # native | emulated
    multiplied_in: str


def formats(chip: Accelerator) -> list[Format]:
    """Formats that a chip can multiply natively, or only by widening them first; the others are left out."""
    rows = (format_of(row, chip) for row in QuantizationMethod.objects.all())
    return sorted((row for row in rows if row), key=lambda row: (row.how != "native", row.name))


def format_of(row: QuantizationMethod, chip: Accelerator) -> Format | None:
    """Native where the multiply runs in the stored dtype; emulated where it is widened to one the chip has."""
    method, rates = row.settings, chip.dense_tflops
    multiplied = method["activations_dtype"]
    if method["applies_to"] != "weights" or not runs_in(multiplied, rates):
        return None
    if (stacks := method.get("stacks")) and not set(stacks) & set(chip.stacks):
        return None
    native = not method.get("weight_only") and int(method["bits_per_weight"]) == width_bits(multiplied)
    return Format(slug=row.slug, name=row.name, how="native" if native else "emulated", multiplied_in=multiplied)


def runs_in(dtype: str, rates: dict[str, float]) -> bool:
    """BF16 and FP16 stand in for each other."""
    return bool(rates.get(dtype) or (dtype in SIXTEEN and any(rates.get(each) for each in SIXTEEN)))


def width_bits(dtype: str) -> int:
    """Bits of a number that a matrix unit multiplies: 4 of fp4, 16 of bf16."""
    return int("".join(c for c in dtype if c.isdigit()) or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """One framework version on one chip."""

    row: Framework
    stacks: str
    native: list[str]
    emulated: list[str]


def frameworks(chip: Accelerator) -> list[Running]:
    """Frameworks that share a stack, the vendor and the kind with a chip, and what they load on it."""
    how = {each.slug: each.how for each in formats(chip)}
    found = []
    for row in Framework.objects.all():
        able = row.settings
        stacks = sorted(set(able["stacks"]) & set(chip.stacks))
        if stacks and chip.vendor in able["vendors"] and chip.kind in able["kinds"]:
            loaded = [slug for slug in able["quantizations"] if slug in how]
            found.append(
                Running(
                    row=row,
                    stacks=", ".join(stacks),
                    native=[slug for slug in loaded if how[slug] == "native"],
                    emulated=[slug for slug in loaded if how[slug] == "emulated"],
                )
            )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivered:
    """What was reached, beside what the data sheet says."""

    what: str
    reached: float
    unit: str
    datasheet: float | None
    basis: str
    conditions: str
    source: str
    as_of: date

    @property
    def share_percent(self) -> float | None:
        return self.reached / self.datasheet * 100 if self.datasheet else None


FITTED = (  # of a calibration: the value, what it is a share of, its unit
    ("memory_fraction", "memory read", "memory", "GB/s"),
    ("matmul_16_fraction", "matrix multiply, 16 bits", "bf16", "TFLOP/s"),
    ("matmul_8_fraction", "matrix multiply, 8 bits", "fp8", "TFLOP/s"),
    ("matmul_4_fraction", "matrix multiply, 4 bits", "fp4", "TFLOP/s"),
)


def delivered(chip: Accelerator) -> list[Delivered]:
    """Measured on this chip first, then what was fitted to it, its family or its kind."""
    return [*measured(chip), *fitted(chip)]


def measured(chip: Accelerator) -> Iterator[Delivered]:
    for row in chip.benchmarks.order_by("what", "-value"):
        yield Delivered(
            what=row.what,
            reached=row.value,
            unit=row.unit,
            datasheet=datasheet(chip, "memory" if row.unit == "GB/s" else row.what.split()[-1]),
            basis="measured",
            conditions=row.conditions,
            source=row.source,
            as_of=row.as_of,
        )


def fitted(chip: Accelerator) -> Iterator[Delivered]:
    """The newest calibrations that apply, the narrowest of each figure."""
    scopes = (f"accelerator:{chip.slug}", f"family:{chip.family.replace(' ', '-')}", f"kind:{chip.kind}", "default")
    newest: dict[str, Calibration] = {}
    for row in Calibration.objects.filter(name__in=scopes).order_by("created_at", "pk"):
        newest[row.name] = row
    for key, what, of, unit in FITTED:
        peak = datasheet(chip, of)
        narrowest = [newest[name] for name in scopes if name in newest and key in newest[name].values]
        if not narrowest or peak is None:
            continue
        row = narrowest[0]
        yield Delivered(
            what=what,
            reached=row.values[key] * peak,
            unit=unit,
            datasheet=peak,
            basis=row.basis if row.name == scopes[0] or row.basis != "measured" else "relative",
            conditions=f"best case of the fit, from {row.name}",
            source=row.fitted_on,
            as_of=row.as_of,
        )


def datasheet(chip: Accelerator, of: str) -> float | None:
    """The data sheet's figure that a measurement is a share of."""
    if of == "memory":
        return chip.memory_gb_per_s
    rates = chip.dense_tflops
    found = rates.get(of) or (rates.get("fp16") if of == "bf16" else rates.get("int8") if of == "fp8" else None)
    return float(found) if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One edited column: before and after."""

    when: Any
    who: str
    what: str
    before: str
    after: str


def changes(row: Any, most: int = 50) -> list[Change]:
    """How a row came to be as it is, newest first."""
    records = list(row.history.select_related("history_user").order_by("-history_date", "-history_id")[: most + 1])
    found = []
    for newer, older in zip(records, [*records[1:], None], strict=True):
        who = str(newer.history_user or newer.history_change_reason or "unknown")
        if older is None:
            word = "first loaded" if newer.history_type == "+" else "first kept"
            found.append(Change(when=newer.history_date, who=who, what=word, before="", after=""))
        else:
            found += [
                Change(when=newer.history_date, who=who, what=words(each.field), before=each.old, after=each.new)
                for each in differing(newer, older)
            ]
    return found[:most]


@dataclass(frozen=True, slots=True)
class Differing:
    field: str
    old: str
    new: str


def differing(newer: Any, older: Any) -> Iterator[Differing]:
    """The columns in which two records differ; of a JSON column only the parts that do."""
    for change in newer.diff_against(older).changes:
        if isinstance(change.old, dict) and isinstance(change.new, dict):
            for key in sorted({*change.old, *change.new}):
                if change.old.get(key) != change.new.get(key):
                    yield Differing(
                        f"{change.field} {key}", str(change.old.get(key, "–")), str(change.new.get(key, "–"))
                    )
        else:
            yield Differing(change.field, str(change.old), str(change.new))


def words(name: str) -> str:
    return name.replace("_", " ")
