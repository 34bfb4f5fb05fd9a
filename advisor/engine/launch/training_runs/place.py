"""Where a training plan runs and for how long."""

import math
from dataclasses import dataclass, replace

from advisor.engine.training import Run

DEFAULT_STEPS = 1000  # without a number of tokens
DEFAULT_CHECKPOINT_STEPS = 500  # without a checkpoint interval
FULL_RATE, CONTINUED_RATE, ADAPTER_RATE = 3e-4, 1e-5, 2e-4  # common starting points; a plan fixes no learning rate
DROPOUT_FRACTION = 0.05  # of adapters with dropout (QLoRA, arXiv 2305.14314)
WARMUP_STEPS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlace:
    """Where a plan runs."""

    model_id: str  # on Hugging Face
    vendor: str  # of the chip
    hosts: int
    chips_per_host: int
    kubernetes_resource: str = ""
    tokens: float = 0.0  # to train on; 0: not known
    checkpoint_interval_s: float | None = None
    step_s: float | None = None
    continued: bool = True  # from the published checkpoint; False: from scratch
    devices_per_chip: int = 1  # as the software stack counts them (NeuronCores, dies)
    kubernetes_devices_per_chip: int = 1  # as the device plugin counts them

    @property
    def processes_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    def steps(self, run: Run) -> int:
        """Optimizer steps of the whole run."""
        return math.ceil(self.tokens / run.global_tokens) if self.tokens else DEFAULT_STEPS

    def checkpoint_steps(self) -> int:
        """Steps between checkpoints."""
        if not self.checkpoint_interval_s or not self.step_s:
            return DEFAULT_CHECKPOINT_STEPS
        return max(round(self.checkpoint_interval_s / self.step_s), 1)

    def learning_rate(self, run: Run) -> float:
        if run.recipe.method != "full":
            return ADAPTER_RATE
        return CONTINUED_RATE if self.continued else FULL_RATE

    def last_learning_rate(self, run: Run) -> float:
        """A tenth, where the schedule ends."""
        return float(f"{self.learning_rate(run) / 10:.6g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The command of one host and its files."""

    argv: tuple[str, ...]  # without torchrun's own options
    files: dict[str, str]
    under_torchrun: bool = True  # False: one process per host starts by itself
    in_pods: bool = True  # False: it starts in a folder of its own sources, which no published image holds
    install: str  # packages, as pip takes them
    prepare: tuple[str, ...] = ()  # shell lines to run once
    notes: tuple[str, ...] = ()


def per_device(run: Run, place: TrainingPlace) -> Run:
    """The plan with the devices of each chip as data-parallel ranks, or tensor-parallel ones where it has these."""
    n, p = place.devices_per_chip, run.parallel
    if n == 1:
        return run
    if p.tp > 1 or place.vendor == "aws":
        return replace(run, parallel=replace(p, tp=p.tp * n, ep=p.ep))
    more = replace(run, parallel=replace(p, dp=p.dp * n, shard=p.shard * n))
    each = max(run.micro_batch * run.micro_batches // n, 1)
    micro_batch = math.gcd(run.micro_batch, each)
    return replace(more, micro_batch=micro_batch, micro_batches=each // micro_batch)
