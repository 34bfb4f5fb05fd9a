"""Where a training plan runs and for how long."""

import json
import math
from dataclasses import dataclass, fields, replace

from advisor.engine.launch.training_runs.templates import FOLDER
from advisor.engine.training import WITH_TRITON, Run

DEFAULT_STEPS = 1000  # without a number of tokens
DEFAULT_CHECKPOINT_STEPS = 500  # without a checkpoint interval
FULL_RATE, CONTINUED_RATE, ADAPTER_RATE = 3e-4, 1e-5, 2e-4  # common starting points; a plan fixes no learning rate
DROPOUT_FRACTION = 0.05  # of adapters with dropout (QLoRA, arXiv 2305.14314)
WARMUP_STEPS = 100
WEIGHT_DECAY, CLIP_NORM, SEED = 0.1, 1.0, 1234
# names in configs/models and in HF_IDS of utils/globals.py, MaxText 0.2.5, also of siblings of one shape
MAXTEXT_NAMES: dict[str, str] = json.loads((FOLDER / "maxtext_models.json").read_text(encoding="utf-8"))


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


def facts_of(run: Run, place: TrainingPlace, framework: str) -> dict[str, object]:
    """What the templates of launch files may say of a plan: every choice of it by its name, and what follows."""
    r, p, steps = run.recipe, run.parallel, place.steps(run)
    sharded = p.shards // (p.cp * p.ep) if p.zero == 3 else 1
    choices = {f.name: getattr(part, f.name) for part in (run, r, p, run.code) for f in fields(part)}
    return choices | {
        "framework": framework,
        "model_id": place.model_id,
        "maxtext_name": MAXTEXT_NAMES.get(place.model_id, ""),
        "continued": place.continued,
        "with_triton": place.vendor in WITH_TRITON,
        "hosts": place.hosts,
        "processes_per_host": place.processes_per_host,
        "global_batch": run.micro_batch * run.micro_batches * p.dp,
        "sequences_per_device": run.micro_batch * p.dp / p.chips,
        "steps": steps,
        "steps_and_one": steps + 1,
        "checkpoint_steps": place.checkpoint_steps(),
        "learning_rate": place.learning_rate(run),
        "last_learning_rate": place.last_learning_rate(run),
        "most_warmup_steps": WARMUP_STEPS,
        "warmup_steps": min(WARMUP_STEPS, max(steps // 10, 1)),
        "warmup_fraction": min(WARMUP_STEPS / steps, 0.1),
        "weight_decay": WEIGHT_DECAY,
        "clip_norm": CLIP_NORM,
        "seed": SEED,
        "adapter_alpha": 2 * r.adapter_rank,
        "dropout_fraction": DROPOUT_FRACTION if r.adapter_dropout else 0.0,
        "parameter_dtype": _dtype(r.parameter_bytes),
        "compute_dtype": _dtype(r.compute_bytes),
        "gradient_dtype": _dtype(r.gradient_bytes),
        "reduce_dtype": _dtype(r.reduce_bytes),
        "liger": "fused" in (run.code.norm, run.code.rotary, run.code.gate) or run.code.loss == "fused_linear",
        "model_ranks": p.tp * p.pp,
        "shards": p.shards,
        "shard_dp": max(p.shard // p.cp, 1),
        "replicas_of_shards": p.dp * p.cp // p.shard if p.shard else 1,
        "sharded_axis": sharded,
        "data_axis": p.dp // (p.ep * sharded),
    }


def _dtype(width_bytes: float) -> str:
    return "float32" if width_bytes >= 4 else "bfloat16"
