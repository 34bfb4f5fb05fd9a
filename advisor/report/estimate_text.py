"""An estimate as text: headline, memory, and where each step's time goes."""

from collections.abc import Sequence

from advisor.engine.terms import usd_text
from advisor.result import ClosedEstimate, Estimate, Latency, MeasuredRow, Operator

RATES = {  # evidence for the rates of the accelerator
    "measured": "rates of this accelerator: measured",
    "relative": "rates of this accelerator: scaled from a related one",
    "datasheet": "rates of this accelerator: from its datasheet only",
}
ARRIVING = ("poisson", "trace", "users")  # clients whose requests arrive by themselves
NAMES = {  # figure with an interval -> its name and unit
    "ttft_ms": "TTFT in ms",
    "ttft_ms_p95": "TTFT p95 in ms",
    "tpot_ms": "TPOT in ms",
    "tpot_ms_p95": "TPOT p95 in ms",
    "latency_ms": "latency in ms",
    "latency_ms_p95": "latency p95 in ms",
    "output_tokens_per_s": "output tokens/s",
    "input_tokens_per_s": "input tokens/s",
    "usd_per_mtok_input": "USD per million input tokens",
    "usd_per_mtok_output": "USD per million output tokens",
}


def table(e: Estimate) -> str:
    """Headline, memory and steps as text."""
    lines = [e.label, *memory_lines(e), ""]
    if e.fits:
        lines += embedding_lines(e) if e.is_embedding else token_lines(e)
        lines += [*cost_lines(e), "", *step_lines(e.step or []), "", *interval_lines(e)]
        lines.append(f"{RATES.get(e.basis, e.basis)}; {'' if e.is_embedding else 'decode is '}{e.bound}-bound")
        if e.correction is not None:
            lines.append(f"correction: {e.correction.said}")
    else:
        lines += ["DOES NOT FIT", *(f"  fits with {option_of(change)}" for change in e.smallest_change or [])]
    return "\n".join([*lines, *(f"warning: {w}" for w in e.warnings), "", *evidence_lines(e.evidence)])


def closed_table(e: ClosedEstimate) -> str:
    """The same of an estimate by closed formulas."""
    lines = [e.label, *memory_lines(e), ""]
    if (found := e.closed_form) is None:
        lines += ["DOES NOT FIT"]
    else:
        figures = found.to_json() | {"requests_per_s": e.requests_per_s, "total_tokens_per_s": e.total_tokens_per_s}
        lines += ["by closed formulas, not simulated:"]
        lines += [f"  {name}: {shown(value)}" for name, value in figures.items() if value is not None]
        price = f"{usd_text(e.usd_per_hour or 0.0)} per hour at {e.provider} (price of {e.price_as_of})"
        lines.append("no current offer can hold it" if e.usd_per_hour is None else price)
    return "\n".join([*lines, *(f"warning: {w}" for w in e.warnings)])


def option_of(change: str) -> str:
    """A changed argument as this command takes it: --max-batched-tokens 2048; sentences stay."""
    name, _, value = change.partition(" ")
    return change if " " in value or not value else f"--{name.replace('_', '-')} {value}"


def token_lines(e: Estimate) -> list[str]:
    return [
        f"client: {e.client_note}",
        latency_line("TTFT", e.ttft_ms),
        latency_line("TPOT", e.tpot_ms),
        *(arrival_lines(e) if e.client in ARRIVING else []),
        f"{shown(e.output_tokens_per_s)} output tokens/s, "
        f"{shown(e.output_tokens_per_s_per_accelerator)} per accelerator",
        f"{shown(e.total_tokens_per_s)} tokens/s including prompts, {shown(e.requests_per_s)} requests/s",
    ]


def arrival_lines(e: Estimate) -> list[str]:
    """What requests that arrive by themselves add: end-to-end times, and how sure the simulated p95 is."""
    bounds = [(name, each.p95_bounds) for name, each in (("TTFT", e.ttft_ms), ("TPOT", e.tpot_ms)) if each]
    chance = ", ".join(f"{name} p95 {shown(b[0])} to {shown(b[1])} ms" for name, b in bounds if b)
    lines = [latency_line("E2E ", e.e2e_ms), latency_line("wait", e.queue_ms)]
    lines.append(f"{shown(e.simulated_requests)} simulated requests: {chance}")
    burst = f", burstiness {shown(e.burstiness)}" if e.burstiness is not None else ""
    sent = f"{shown(e.rate)} requests/s{burst}" if e.rate is not None else e.client
    lines.append(f"load: {sent}; {shown(e.running_requests_mean)} requests run at once")
    return lines


def embedding_lines(e: Estimate) -> list[str]:
    """An embedding model generates no tokens."""
    return [
        latency_line("latency", e.latency_ms),
        f"{shown(e.sequences_per_s)} sequences/s, {shown(e.input_tokens_per_s)} tokens/s, "
        f"{shown(e.input_tokens_per_s_per_accelerator)} per accelerator",
    ]


def interval_lines(e: Estimate) -> list[str]:
    """90 % intervals of the headline figures that have one."""
    if e.interval is None:
        return []
    ranges = {name: pair for name, pair in e.interval if pair is not None and name in e.interval.model_fields_set}
    return [f"90% range: {NAMES.get(name, name)} {shown(low)} to {shown(high)}" for name, (low, high) in ranges.items()]


def evidence_lines(rows: Sequence[MeasuredRow]) -> list[str]:
    """The nearest measured rows with their prediction; says so when none is near."""
    if not rows:
        return ["nearest measured rows: no scorecard is loaded"]
    near = any(row.near for row in rows)
    lines = ["nearest measured rows:" if near else "no measured row is similar to this; the nearest:"]
    lines.append("  distance (0: the same run), deployment, input/output tokens, figure")
    for row in rows:
        users = "unknown number of" if row.concurrency is None else f"{row.concurrency:g}"
        error = "not predicted" if row.error_fraction is None else f"{row.error_fraction:.1%} off"
        lines.append(
            f"  {row.distance:5.2f}  {row.accelerator_count} x {row.accelerator}, {row.model}, "
            f"{row.framework} {row.framework_version}, {row.weights_dtype} {row.layout}, "
            f"{row.isl:g}/{row.osl:g} tokens, {users} users: {row.metric} "
            f"measured {shown(row.measured)}, predicted {shown(row.predicted)} ({error}); {row.source}"
        )
    return lines


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def latency_line(name: str, ms: Latency | None) -> str:
    if ms is None:
        return f"{name}  not computed"
    return f"{name}  mean {shown(ms.mean)} ms, p50 {shown(ms.p50)}, p95 {shown(ms.p95)}, p99 {shown(ms.p99)}"


def memory_lines(e: Estimate | ClosedEstimate) -> list[str]:
    parts = ", ".join(f"{name.removesuffix('_gib')} {shown(gib)}" for name, gib in e.memory.parts().items())
    source = e.source_kv_bytes_per_sequence
    encoder = f", {shown(source)} for the encoder input of each request" if source else ""
    cache = (
        f"KV cache: {shown(e.kv_bytes_per_token)} bytes per token and accelerator{encoder}, room for "
        f"{shown(e.kv_capacity_tokens)} tokens per replica"
        if e.kv_capacity_tokens is not None
        else "no KV cache"
    )
    return [
        f"memory per accelerator, GiB of {shown(e.usable_gib)} usable: {parts}",
        f"{cache}; {e.concurrency:,} requests in flight per replica",
    ]


def cost_lines(e: Estimate) -> list[str]:
    kind, joules, usd = (
        ("input", e.joules_per_input_token, e.usd_per_mtok_input)
        if e.is_embedding
        else ("output", e.joules_per_output_token, e.usd_per_mtok_output)
    )
    each = f"{shown(e.accelerator_watts)} W of the accelerator + {shown(e.host_watts_per_accelerator)} W of its host"
    power = (
        f"{shown(e.watts)} W under this load ({e.accelerator_count} x ({each}) x PUE {shown(e.pue)}), "
        f"{shown(joules)} J per {kind} token"
    )
    if e.usd_per_hour is None:
        return [power, "no current offer can hold it"]
    return [
        power,
        f"{usd_text(e.usd_per_hour)} per hour {'if bought' if e.provider == 'own' else f'at {e.provider}'} (price of "
        f"{e.price_as_of}): {usd_text(usd or 0.0)} per million {kind} tokens",
    ]


def step_lines(steps: Sequence[Operator]) -> list[str]:
    """One prefill and one decode step, operator by operator."""
    lines = []
    for phase in ("prefill", "decode"):
        own = [s for s in steps if s.phase == phase]
        if not own:
            continue
        total_s = sum(s.time_s or 0.0 for s in own)
        lines.append(f"one {phase} step: {shown(total_s * 1e3)} ms")
        lines += [operator_line(s, total_s) for s in own]
    return lines


def operator_line(s: Operator, total_s: float) -> str:
    time_s, flops, size = s.time_s or 0.0, s.flops or 0.0, s.bytes or 0.0
    return (
        f"  {s.operator:28} {time_s * 1e3:10.3f} ms {time_s / total_s:6.1%}  "
        f"{flops / 1e9:12,.1f} GFLOP {size / 1e6:12,.1f} MB  {s.bound}"
    )
