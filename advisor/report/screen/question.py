"""The question in one line: model, load, growth, limits, constraints, budget, owned machines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.engine.terms import kind_named
from advisor.report.asked import spec_of
from advisor.report.screen.machines import chip_text, list_of
from advisor.result import Answer
from advisor.templatetags.training import amount, dates_said, training_said
from advisor.templatetags.units import dollars, given

Spec = Mapping[str, Any]
WAYS = {"rent": "rent", "own": "buy", "api": "hosted API"}
SPARES = {"n+1": "one spare", "n+2": "two spares", "2n": "everything twice"}
LISTS = ("accelerators", "vendors", "providers", "regions", "frameworks", "formats")
NAMED = 3  # names of a constraint that are spelled out; of more, their number
COUNTED = {"accelerators": "kinds of accelerator", "formats": "number formats"}  # "3 accelerators" would be a limit
AREAS = ("eu", "us", "uk")  # regions that are abbreviations


def title_of(answer: Answer) -> str:
    """The workload's name, which every question has: advisor/workload/title.py."""
    spec = spec_of(answer)
    return str((spec.get("name") or "") if spec else answer.workload)


def question_of(answer: Answer) -> str:
    """What was asked, as one line below the title; the model and the rate are not repeated where the title has them."""
    spec = spec_of(answer)
    if not spec:
        return ""
    if spec.get("workloads"):
        parts = [str(part.get("name") or model_of(part)) for part in spec["workloads"]]
        said = [f"{', '.join(parts)} on one fleet", *constraints_of(spec)]
    else:
        said = [unless_named(model_of(spec), spec), *load_of(spec), *limits_of(spec), *constraints_of(spec)]
    return " · ".join(filter(None, said))


def unless_named(text: str, spec: Spec, more: str = "") -> str:
    """The text with what follows it; empty where the title, which stands above, has it."""
    return "" if text in str(spec.get("name") or "").split(", ") else text + more


def model_of(spec: Spec) -> str:
    """The model without its publisher."""
    model = spec.get("model")
    return "own model" if isinstance(model, Mapping) else str(model or "").rpartition("/")[2]


def load_of(spec: Spec) -> Iterator[str]:
    """What is served or trained, and how much of it."""
    if kind_named(spec.get("kind")).trains:
        yield from run_of(spec)
        return
    traffic = spec.get("traffic") or {}
    yield ", ".join(filter(None, [contents(spec, traffic), rate_of(spec, traffic)]))
    if growth := traffic.get("growth_fraction_per_year"):
        yield f"growing {growth * 100:.3g}% a year" if growth > 0 else f"shrinking {-growth * 100:.3g}% a year"
    if count := (spec.get("adapters") or {}).get("count"):
        yield f"{given(count)} LoRA adapters"


def contents(spec: Spec, traffic: Spec) -> str:
    """What one request holds."""
    tokens = given((traffic.get("input_tokens") or {}).get("mean"))
    if image := traffic.get("image_output"):
        return f"images of {given(image['width_px'])} × {given(image['height_px'])} px"
    if documents := traffic.get("documents_per_request"):
        return f"{given(documents)} documents of {tokens} tokens"
    if audio := traffic.get("audio"):
        return f"{given(audio['hours_per_hour'])} hours of audio an hour"
    if not kind_named(spec.get("kind")).generates_tokens:
        return f"{tokens} tokens each"
    said = f"{tokens} tokens in, {given((traffic.get('output_tokens') or {}).get('mean'))} out"
    if turns := traffic.get("turns"):
        said += f", {given(turns['count'])} turns"
    return f"images and {said}" if traffic.get("images") else said


def rate_of(spec: Spec, traffic: Spec) -> str:
    """How many requests there are."""
    if batch := spec.get("batch"):
        again = f", every {given(batch['every_hours'])} h" if batch.get("every_hours") else ""
        again = ", once" if batch.get("once") == "yes" else again
        return f"{given(batch['requests'])} requests within {given(batch['deadline_hours'])} h{again}"
    if users := traffic.get("users"):
        return unless_named(f"{given(users['active'])} users", spec, " at a time")
    if traffic.get("audio"):
        return ""
    rate = traffic.get("requests_per_s") or {}
    if rate.get("mean") is None:
        return "recorded trace" if traffic.get("trace") else ""
    peak = f"peak {given(rate['peak'])}" if rate.get("peak") not in (None, rate["mean"]) else ""
    mean = unless_named(f"{given(rate['mean'])} requests/s", spec)
    return ", ".join(filter(None, [mean, peak]))


def run_of(spec: Spec) -> Iterator[str]:
    """What is trained on how much, until when."""
    section, what = spec.get(str(spec.get("kind"))) or {}, training_said(spec)
    objective = str(section.get("objective") or "").upper()
    what = f"{objective}, {what}" if objective in ("DPO", "GRPO") else what
    if section.get("tokens"):
        what += f" on {amount(section['tokens'])} tokens"
    elif section.get("pairs"):
        what += f" on {amount(section['pairs'])} pairs"
    elif section.get("iterations"):
        what += f", {amount(section['iterations'])} iterations"
    elif section.get("budget_usd"):
        what += f" for {dollars(section['budget_usd'])}"
    yield what
    yield from dates_said(section)


def limits_of(spec: Spec) -> Iterator[str]:
    """The latency limits and the margins."""
    slo = spec.get("slo") or {}
    limits = []
    if slo.get("ttft_ms_p95"):
        limits.append(f"first token {given(slo['ttft_ms_p95'])} ms")
    if slo.get("tpot_ms_p95"):
        limits.append(f"each further token {given(slo['tpot_ms_p95'])} ms")
    if slo.get("e2e_ms_p95"):
        limits.append(f"whole answer {given(slo['e2e_ms_p95'])} ms")
    if limits:
        yield f"limits: {', '.join(limits)}"
    if slo.get("tokens_per_s_per_user"):
        yield f"at least {given(slo['tokens_per_s_per_user'])} tokens/s per user"
    if slo.get("availability") not in (None, "n"):
        yield SPARES.get(slo["availability"], slo["availability"])
    if isinstance(slo.get("confidence"), float):
        yield f"{slo['confidence']:.0%} confidence"


def constraints_of(spec: Spec) -> Iterator[str]:
    """What the answer may use: ways to pay, sellers, regions, budget, site, machines that are owned."""
    c = spec.get("constraints") or {}
    ways = c.get("acquisition") or []
    if ways and set(ways) != set(WAYS):
        yield " or ".join(WAYS.get(way, way) for way in ways) + " only"
    for key in LISTS:
        names = c.get(key) or {}
        if names.get("allow"):
            yield f"only {few(named(names['allow'], key), key)}"
        if names.get("deny"):
            yield f"not {few(named(names['deny'], key), key)}"
    if c.get("max_accelerators") is not None:
        yield f"at most {given(c['max_accelerators'])} accelerators"
    if (c.get("site") or {}).get("max_kw") is not None:
        yield f"at most {given(c['site']['max_kw'])} kW"
    if c.get("max_usd_per_month") is not None:
        yield f"budget {dollars(c['max_usd_per_month'])} a month"
    if c.get("max_capex_usd") is not None:
        yield f"purchases up to {dollars(c['max_capex_usd'])}"
    if owned := spec.get("owned"):
        shown = [f"{given(count)} × {chip_text(name)}" for name, count in owned.items()]
        yield f"you own {few(shown, 'accelerators')}"


def named(names: Sequence[object], key: str) -> list[str]:
    """Names of a constraint as people write them: EU, Europe, H200 SXM."""
    texts = [str(name) for name in names]
    if key == "accelerators":
        return [chip_text(text) for text in texts]
    if key == "regions":
        return [text.upper() if text in AREAS else text.title() if text.isalpha() else text for text in texts]
    return texts


def few(names: Sequence[str], key: str) -> str:
    """A, B and C; of more, how many."""
    return list_of(names) if len(names) <= NAMED else f"{len(names)} {COUNTED.get(key, key)}"
