"""Training steps that agents measured: their predictions, and the figures that they determine.

`train_step` times whole steps of a few layers on one chip; `train_overlap` a forward and backward pass beside the
collectives of data parallelism on several chips of a host (docs/reference/probes.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.engine import training
from advisor.engine.calibration import Figure, median_of, samples
from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.terms import Accelerator, Efficiency
from advisor.engine.training import BF16, PLAIN, Run, Shape

STEP, OVERLAP = "train_step", "train_overlap"
KINDS = (STEP, OVERLAP)
# The models whose layers agents measure on GPUs: (hidden, attention, inner). Those of CPUs are too small to say much.
NETS = {"llama-3.1-8b": (4096, Attention(heads=32, kv_heads=8, head_dim=128), 14336)}
CODE = replace(PLAIN, rotary="fused")  # these layers have no rotary embedding
MATRICES = 4  # of a layer, each with a collective of its own
MIN_STEPS = 3
FACTORS = (0.5, 2.0)  # outside, something other than the chip's rates decides
MIN_HIDDEN_FRACTION = 0.05  # of the compute, that collectives must overlap to tell how much they slow it
Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One measured quantity and its prediction, in seconds, bytes or as a fraction."""

    key: Mapping[str, Any]
    quantity: str
    measured: float
    predicted: float
    held_out: float | None = None  # predicted with figures fitted to the rows of other lengths


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The figures that results determine, and for each kind without one the reason."""

    figures: tuple[Figure, ...]
    reasons: tuple[str, ...]


# ------------------------------------------------------------------ predictions


def run_of(key: Mapping[str, Any]) -> tuple[Model, Run] | None:
    """The layers of a row and their run on one chip; None: not layers that can be compared."""
    if key.get("model") not in NETS or key.get("dtype") != "bf16":
        return None
    hidden, mixer, inner = NETS[key["model"]]
    block = Block(count=int(key["layers"]), mixer=mixer, ffn=Ffn(inner=inner))
    run = Run(sequence_tokens=int(key["tokens"]), recipe=BF16, code=CODE, recompute=key.get("recompute", "none"))
    return Model(slug="layers", hidden=hidden, vocab=8, blocks=(block,)), run


def step_of(model: Model, run: Run, chip: Accelerator, e: Efficiency) -> training.StepTime:
    return training.step_time(model, Shape.of(run), training.rates_of(chip, e, BF16, CODE), run)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlapped:
    """A forward and backward pass and the collectives beside it, in seconds."""

    compute_s: float  # alone
    communication_s: float  # alone
    compute_beside_s: float  # until the compute of both at once ends, with its waits for gathered weights
    both_s: float

    @property
    def hidden_fraction(self) -> float:
        """The share of the communication that does not make the step longer."""
        return 1.0 - (self.both_s - self.compute_s) / self.communication_s


def overlapped(key: Mapping[str, Any], chip: Accelerator, e: Efficiency) -> Overlapped:
    """The prediction of a `train_overlap` row of known layers, with the collectives that the probe sends."""
    known = run_of(key)
    assert known is not None
    model, run = known
    layers, ranks, sharded = int(key["layers"]), int(key["devices"]), key["sharding"] == "full"
    rates = training.rates_of(chip, e, BF16, CODE)
    compute_s = float(step_of(model, run, chip, e).compute_s)
    layer_bytes = BF16.compute_bytes * training.trained_parameters(model, BF16) / layers
    gathers = 2 * layers - 1 if sharded else 0  # the last layer's weights stay for its backward pass
    passes = gathers + layers if sharded else 2 * layers
    communication_s = float(training.ring_s(rates, ranks, passes * layer_bytes, gathers + MATRICES * layers))
    first_s = float(training.ring_s(rates, ranks, layer_bytes)) if sharded else 0.0
    slowed, over = training.overlap(rates, compute_s, communication_s - first_s, compute_s)
    beside_s = compute_s + float(slowed)
    return Overlapped(
        compute_s=compute_s,
        communication_s=communication_s,
        compute_beside_s=beside_s + first_s,
        both_s=beside_s + first_s + float(over),
    )


def measured_overlap(entry: Entry) -> Overlapped:
    parts = entry["parts_s"]
    return Overlapped(
        compute_s=parts["compute"],
        communication_s=parts["communication"],
        compute_beside_s=parts["compute_beside"],
        both_s=entry["time_s"]["median"],
    )


def unfitted(e: Efficiency) -> Efficiency:
    """The kernel rates without the factor that is fitted to training steps."""
    return replace(e, training_factor=1.0)


def compared(entries: Iterable[Entry], chip: Accelerator, e: Efficiency) -> list[Line]:
    """Measured and predicted figures of every training row whose layers are known.

    `predicted` uses the kernel rates alone and `held_out` figures fitted to rows of other lengths: never to these rows,
    which the calibration in use may contain.
    """
    rows = [x for x in entries if x["kind"] in KINDS and run_of(x["key"]) is not None]
    plain, lines = unfitted(e), []
    for row in rows:
        fit = figures_of((x for x in rows if x["key"]["tokens"] != row["key"]["tokens"]), chip, plain)
        values: dict[str, Any] = {figure.name: figure.value for figure in fit.figures}
        held_out = _predicted(row, chip, replace(plain, **values)) if values else {}
        held_out.pop("peak_bytes", None)  # no figure changes it
        predicted = _predicted(row, chip, plain)
        lines += [
            Line(key=row["key"], quantity=name, measured=value, predicted=predicted[name], held_out=held_out.get(name))
            for name, value in _measured(row).items()
        ]
    return lines


def _measured(row: Entry) -> dict[str, float]:
    if row["kind"] == OVERLAP:
        return _quantities(measured_overlap(row))
    peak = {"peak_bytes": float(row["peak_bytes"])} if row.get("peak_bytes") else {}
    return {"step_s": row["time_s"]["median"], **peak}


def _predicted(row: Entry, chip: Accelerator, e: Efficiency) -> dict[str, float]:
    known = run_of(row["key"])
    assert known is not None
    if row["kind"] == OVERLAP:
        return _quantities(overlapped(row["key"], chip, e))
    model, run = known
    peak = training.peak_memory(model, run).allocated_bytes
    return {"step_s": float(step_of(model, run, chip, e).step_s), "peak_bytes": float(peak)}


def _quantities(o: Overlapped) -> dict[str, float]:
    names = ("compute_s", "communication_s", "compute_beside_s", "both_s", "hidden_fraction")
    return {name: getattr(o, name) for name in names}


# ------------------------------------------------------------------ the fit


def figures_of(entries: Iterable[Entry], chip: Accelerator, e: Efficiency) -> Fit:
    """`training_factor` of a chip with the kernel rates `e`, from result entries, and what `train_overlap` found."""
    entries = list(entries)
    fits = {STEP: training_factor, OVERLAP: overlap_said}
    found = [fit(entries, chip, e) for kind, fit in fits.items() if any(x["kind"] == kind for x in entries)]
    return Fit(
        figures=tuple(f for f in found if isinstance(f, Figure)), reasons=tuple(f for f in found if isinstance(f, str))
    )


def training_factor(entries: Iterable[Entry], chip: Accelerator, e: Efficiency) -> Figure | str:
    """Measured over predicted time of whole steps, with the chip's own kernel rates; or why there is none.

    Only of steps without recomputation, whose model is another matter than the chip, and not of those that wait for
    the host. A factor that cannot be told from 1 replaces only another one.
    """
    plain, ratios = replace(e, training_factor=1.0), []
    for s in samples(x for x in entries if x["kind"] == STEP and x["key"].get("recompute") == "none"):
        if (known := run_of(s.key)) is None:
            continue
        step = step_of(*known, chip, plain)
        if float(step.host_s) < float(step.step_s):
            ratios.append(s.time_s / float(step.step_s))
    if len(ratios) < MIN_STEPS:
        return (
            f"{STEP}: no training factor from {len(ratios)} usable steps (known layers on a GPU, no recomputation, "
            f"steady, correct), at least {MIN_STEPS} are needed: run the full suite"
        )
    figure = median_of("training_factor", ratios, f"{len(ratios)} training steps of a few layers")
    assert figure is not None
    if not FACTORS[0] <= figure.value <= FACTORS[1]:
        return (
            f"{STEP}: steps took {figure.value:.2f} times as long as the kernel rates of this chip predict, too far "
            "from 1 to be a property of the chip"
        )
    if not figure.low <= 1.0 <= figure.high:
        return figure
    if e.training_factor != 1.0:
        return replace(figure, value=1.0)
    return (
        f"{STEP}: steps took {figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f}) times as long as the kernel "
        "rates of this chip predict; the range includes 1, so there is nothing to correct"
    )


def overlap_said(entries: Iterable[Entry], chip: Accelerator, e: Efficiency) -> str:
    """What overlapping rows say, and why it changes no figure.

    On two H100s these rows give 0.47, but steps of FSDP2 on the same kind of machine are predicted within 0.5 % with
    the default of 0.18, and 0.8 to 4 % too slow with 0.47 (docs/explanation/training.md).
    """
    fractions = slowdowns(entries)
    if not fractions:
        return (
            f"{OVERLAP}: no slowdown from usable rows (known layers on GPUs, gradients all-reduced, steady, correct) "
            f"whose collectives run beside at least {MIN_HIDDEN_FRACTION:.0%} of the compute"
        )
    return (
        f"{OVERLAP}: compute lost {float(np.median(fractions)):.2f} s in each second of all-reduces beside it. "
        f"Predictions keep {e.overlap_slowdown_fraction:.2f}, with which whole steps of FSDP2 are predicted better"
    )


def slowdowns(entries: Iterable[Entry]) -> list[float]:
    """Extra time of compute over the time that all-reduces run beside it, of each usable row.

    Not of sharded steps, where compute also waits for gathered weights.
    """
    rows = [x for x in entries if x["kind"] == OVERLAP and x["key"].get("sharding") == "none"]
    usable = {tuple(sorted(s.key.items())) for s in samples(rows)}
    fractions = []
    for row in rows:
        if tuple(sorted(row["key"].items())) not in usable or not row.get("parts_s") or run_of(row["key"]) is None:
            continue
        m = measured_overlap(row)
        beside_s = m.communication_s - (m.both_s - m.compute_beside_s)
        if beside_s >= MIN_HIDDEN_FRACTION * m.compute_s:
            fractions.append((m.compute_beside_s - m.compute_s) / beside_s)
    return fractions
