"""The JSON of `estimate` as text: headline, memory, and where each step's time goes."""

from collections.abc import Mapping
from typing import Any


def table(said: Mapping[str, Any]) -> str:
    """Headline, memory and steps as text."""
    lines = [said["label"], *memory_lines(said), ""]
    if not said["fits"]:
        lines += ["DOES NOT FIT", *(f"  fits with {change}" for change in said["smallest_change"])]
        return "\n".join([*lines, *(f"warning: {w}" for w in said["warnings"]), "", *evidence_lines(said["evidence"])])
    lines += vector_lines(said) if "latency_ms" in said else token_lines(said)
    lines += money_lines(said) + [""] + step_lines(said["step"]) + [""]
    lines += [f"90 %: {name} {shown(low)} to {shown(high)}" for name, (low, high) in said["interval"].items()]
    lines.append(f"basis: {said['basis']}; {'' if 'latency_ms' in said else 'decode is '}{said['bound']}-bound")
    return "\n".join([*lines, *(f"warning: {w}" for w in said["warnings"]), "", *evidence_lines(said["evidence"])])


def token_lines(said: Mapping[str, Any]) -> list[str]:
    return [
        latency("TTFT", said["ttft_ms"]),
        latency("TPOT", said["tpot_ms"]),
        f"{shown(said['output_tokens_per_s'])} output tokens/s, "
        f"{shown(said['output_tokens_per_s_per_accelerator'])} per accelerator",
        f"{shown(said['total_tokens_per_s'])} tokens/s with the prompts, {shown(said['requests_per_s'])} requests/s",
    ]


def vector_lines(said: Mapping[str, Any]) -> list[str]:
    """An embedding model generates no tokens."""
    return [
        latency("latency", said["latency_ms"]),
        f"{shown(said['sequences_per_s'])} sequences/s, {shown(said['input_tokens_per_s'])} tokens/s, "
        f"{shown(said['input_tokens_per_s_per_accelerator'])} per accelerator",
    ]


def evidence_lines(items: list[Mapping[str, Any]]) -> list[str]:
    """The nearest measured rows, and plainly when nothing is near."""
    if not items:
        return ["nearest measured rows: no scorecard is loaded"]
    near = any(item["near"] for item in items)
    lines = ["nearest measured rows:" if near else "nothing measured is near this; the least far:"]
    for item in items:
        measured, predicted = shown(item["measured"]), shown(item["predicted"])
        error = "does not fit" if item["error_fraction"] is None else f"{item['error_fraction']:.1%} off"
        lines.append(
            f"  {item['distance']:5.2f}  {item['accelerator_count']} x {item['accelerator']}, {item['model']}, "
            f"{item['framework']} {item['framework_version']}, {item['weights_dtype']} {item['layout']}, "
            f"{item['isl']:g}/{item['osl']:g}, {item['concurrency'] or 'any number of'} users: {item['metric']} "
            f"measured {measured}, predicted {predicted} ({error})"
        )
    return lines


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def latency(name: str, ms: Mapping[str, float | None]) -> str:
    return f"{name}  mean {shown(ms['mean'])} ms, " + ", ".join(f"{k} {shown(ms[k])}" for k in ("p50", "p95", "p99"))


def memory_lines(said: Mapping[str, Any]) -> list[str]:
    parts = ", ".join(f"{name.removesuffix('_gib')} {shown(gib)}" for name, gib in said["memory"].items())
    source = said["source_kv_bytes_per_sequence"]
    beside = f", {shown(source)} for the source of each request" if source else ""
    cache = (
        f"cache: {shown(said['kv_bytes_per_token'])} bytes per token and chip{beside}, room for "
        f"{shown(said['kv_capacity_tokens'])} tokens per replica"
        if said["kv_capacity_tokens"] is not None
        else "no cache is kept"
    )
    return [
        f"memory per chip, GiB of {shown(said['usable_gib'])} usable: {parts}",
        f"{cache}; {said['concurrency']:,} requests in flight on each",
    ]


def money_lines(said: Mapping[str, Any]) -> list[str]:
    kind = "input" if "latency_ms" in said else "output"
    power = f"{shown(said['watts'])} W while it has work, {shown(said[f'joules_per_{kind}_token'])} J per {kind} token"
    if said["usd_per_hour"] is None:
        return [power, "no current offer holds it"]
    return [
        power,
        f"${shown(said['usd_per_hour'])} per hour at {said['provider']} ({said['price_as_of']}): "
        f"${shown(said[f'usd_per_mtok_{kind}'])} per million {kind} tokens",
    ]


def step_lines(steps: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for phase in ("prefill", "decode"):
        own = [s for s in steps if s["phase"] == phase]
        if not own:
            continue
        total = sum(s["time_s"] for s in own)
        lines.append(f"one {phase} step: {shown(total * 1e3)} ms")
        lines += [
            f"  {s['operator']:28} {s['time_s'] * 1e3:10.3f} ms {s['time_s'] / total:6.1%}  "
            f"{s['flops'] / 1e9:12,.1f} GFLOP {s['bytes'] / 1e6:12,.1f} MB  {s['bound']}"
            for s in own
        ]
    return lines
