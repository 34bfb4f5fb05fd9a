"""Training: what a step stores on each chip and how long it takes."""

from advisor.engine.training.communication import communication, ring_s
from advisor.engine.training.flops import model_flops, peak_flops_per_s, recomputed_flops
from advisor.engine.training.layouts import Job, fastest
from advisor.engine.training.memory import PeakMemory, fits, outside_bytes, peak_memory
from advisor.engine.training.operators import (
    Line,
    Rates,
    Shape,
    ledger,
    rates_of,
    trained_parameters,
)
from advisor.engine.training.run import (
    AMP,
    BF16,
    BF16_MASTER,
    FSDP_MIXED,
    HF,
    LORA16,
    MEGATRON,
    MEGATRON_BF16,
    PLAIN,
    Code,
    Parallel,
    Recipe,
    Run,
)
from advisor.engine.training.step_time import HEAD, StepTime, step_time

__all__ = [
    "AMP",
    "BF16",
    "BF16_MASTER",
    "Code",
    "FSDP_MIXED",
    "HEAD",
    "HF",
    "Job",
    "LORA16",
    "Line",
    "MEGATRON",
    "MEGATRON_BF16",
    "PLAIN",
    "Parallel",
    "PeakMemory",
    "Rates",
    "Recipe",
    "Run",
    "Shape",
    "StepTime",
    "communication",
    "fastest",
    "fits",
    "ledger",
    "model_flops",
    "outside_bytes",
    "peak_flops_per_s",
    "peak_memory",
    "ring_s",
    "rates_of",
    "recomputed_flops",
    "step_time",
    "trained_parameters",
]
