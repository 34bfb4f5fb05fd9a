"""A field and a group of the workload form, and what their values are called."""

from dataclasses import dataclass
from typing import cast

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy
from django.utils.translation import gettext_noop as known

NUMBER, WHOLE, TEXT, LIST, ONE_OF, SOME_OF = "number", "whole", "text", "list", "one of", "some of"
LINES, COUNTS, CURVE, VALUES, FILE = "lines", "counts", "curve", "values", "file"
NUMBERS, PATH, CASES, TOKENS, SWITCH = "numbers", "price path", "cases", "tokens", "switch"
PREFIXES = "prefixes"
SECTIONS = (PATH, CASES, PREFIXES)  # a section a line


def _(text: str) -> str:
    """Translated when a page shows it."""
    return cast(str, gettext_lazy(text))


def filled(text: str, **values: object) -> str:
    """A translated text with its placeholders filled in."""
    return cast(str, format_lazy(text, **values))


@dataclass(frozen=True)
class Field:
    """A form field: path in the workload file, label with unit, and how its text is read."""

    path: str
    label: str
    reads: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    suggestions: str = ""  # name of the datalist


@dataclass(frozen=True)
class Group:
    """Fields under a title; `says`: in the summary of a closed group while nothing in it is set."""

    title: str
    fields: tuple[Field, ...]
    help: str = ""
    says: str = ""


STACKS = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "xla": "XLA",
    "neuron": "Neuron",
    "oneapi": "oneAPI",
    "synapse": "Gaudi (SynapseAI)",
    "metal": "Metal",
    "ttnn": "Tenstorrent (TT-NN)",
    "qaic": "Cloud AI 100",
    "cpu": "CPU serving",
}
WEIGHED = {
    "cost": _("cost"),
    "latency": _("time per token"),
    "energy": _("power"),
    "ecosystem": _("ecosystem"),
    "team": _("team skills"),
    "risk": _("risk"),
    "lead_time": _("lead time"),
    "lock_in": _("lock-in"),
}
TASKS = {  # labels of tasks; the values keep their spelling
    "any": known("any"),
    "chat": known("chat"),
    "code": known("code"),
    "maths": known("math"),
    "summarisation": known("summarization"),
    "reasoning": known("reasoning"),
    "translation": known("translation"),
    "retrieval": known("retrieval"),
}
KIND_TITLES = (
    known("text generation (online serving)"),
    known("embeddings"),
    known("reranking (query and documents to scores)"),
    known("image generation (diffusion)"),
    known("batch job with a deadline"),
    known("training (pre-training and continued pre-training)"),
    known("fine-tuning"),
)
TERMS = {
    "on_demand": known("on-demand"),
    "spot": known("spot"),
    "reserved_1y": known("1-year commitment"),
    "reserved_3y": known("3-year commitment"),
    "capacity_block": known("capacity block"),
}
ON_OFF = (("yes", _("yes")), ("no", _("no")))
OF_SERVING = ("traffic", "slo", "batch", "adapters", "structured_output")  # refused or unused by kinds that train
# only kinds that serve
NOT_FOR_TRAINING = (
    "task", "constraints.partitions", "variants", "speculative", "disaggregated", "probe",
    "use_measurements",
)  # fmt: skip
CHOSEN_BY_SERVING = ("constraints.frameworks", "constraints.formats", "constraints.kv_formats")
TRACE_TEXT, TRACE_FILE = "traffic.trace.csv", "traffic.trace.file"
TRAFFIC_BY, LATENCY, YAML = "form.traffic", "form.latency", "yaml"
FORM_ONLY = "form."  # fields that only choose what other fields mean
# Title, TTFT and TPOT in ms, p95: the limits of the examples of these uses (fixtures/workloads)
LATENCIES = {
    "chat": (_("chat: 1 s, then 40 ms per token"), 1000.0, 40.0),
    "interactive": (_("interactive coding: 0.5 s, then 20 ms per token"), 500.0, 20.0),
    "documents": (_("long documents: 4 s, then 50 ms per token"), 4000.0, 50.0),
}


def choice(path: str, label: str, help: str, *choices: tuple[str, str]) -> Field:
    return Field(path, label, ONE_OF, help, choices=choices)


def allow_and_deny(key: str, allow: str, deny: str, suggestions: str = "") -> tuple[Field, Field]:
    """The allow and deny fields of a constraint."""
    return (
        Field(f"constraints.{key}.allow", allow, LIST, _("Empty: all"), suggestions=suggestions),
        Field(f"constraints.{key}.deny", deny, LIST, _("Empty: none excluded"), suggestions=suggestions),
    )


def price_path(name: str, label: str, help: str) -> Field:
    return Field(f"tco.price_paths.{name}", filled(_("Price path: {of}"), of=label), PATH, help)
