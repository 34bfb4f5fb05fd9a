"""Prometheus metrics of vLLM and SGLang, as /metrics shows them: counters, gauges and histograms of each model."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from advisor.deployments.records import DeploymentError, Range, Record, Seen, Settings, Spread, exact, tail

OURS = re.compile(
    r"^(?:ray_)?(vllm|sglang)[:_](\w+)(?=[{ \t])", re.MULTILINE
)  # collectors write _ for :, Ray adds its name
STARTED = re.compile(r"^process_start_time_seconds(?=[{ \t])", re.MULTILINE)
MOST_SAMPLES = 100_000
MOST_LINE = 10_000
RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "pid")  # each rank of a group counts the same requests
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# what a metric was called, newest first; the same in both servers where the name is the same
REQUESTS = ("request_success_total", "request_success", "num_requests_total", "num_requests")
PROMPT = ("prompt_tokens_total", "prompt_tokens")
GENERATED = ("generation_tokens_total", "generation_tokens")
RUNNING = ("num_requests_running", "num_running_reqs")
WAITING = ("num_requests_waiting", "num_queue_reqs")
USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage", "full_token_usage")
QUERIES = ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total", "prefix_cache_queries")
HITS = ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total", "prefix_cache_hits")
HIT_RATE = ("cache_hit_rate", "gpu_prefix_cache_hit_rate")
PREEMPTIONS = ("num_preemptions_total", "num_preemptions", "num_retracted_requests_total")
FAILED = ("num_aborted_requests_total",)
DRAFTS = ("spec_decode_num_drafts_total", "spec_decode_num_drafts")
DRAFTED = ("spec_decode_num_draft_tokens_total", "spec_decode_num_draft_tokens")
ACCEPTED = ("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens")
LATENCIES = {
    "ttft_ms": ("time_to_first_token_seconds",),
    "tpot_ms": ("request_time_per_output_token_seconds",),
    "itl_ms": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "e2e_ms": ("e2e_request_latency_seconds",),
    "queue_ms": ("request_queue_time_seconds", "queue_time_seconds"),
}
LENGTHS = {
    "input_tokens": ("request_prompt_tokens", "prompt_tokens_histogram"),
    "output_tokens": ("request_generation_tokens", "generation_tokens_histogram"),
}
INFO = {  # labels of vllm:cache_config_info -> setting
    "cache_dtype": "kv_dtype", "gpu_memory_utilization": "memory_fraction", "enable_prefix_caching": "prefix_caching",
}  # fmt: skip

Labels = frozenset[tuple[str, str]]


@dataclass(slots=True)
class Scrape:
    """The samples of one model of one server, by metric; each with its labels."""

    source: str
    framework: str
    model: str
    samples: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)
    started_s: float | None = None  # Unix time
    at_s: float | None = None

    def of(self, names: Sequence[str]) -> list[tuple[Labels, float]]:
        return next((self.samples[name] for name in names if name in self.samples), [])

    def total(self, names: Sequence[str]) -> float | None:
        return self._finite(sum(values) if (values := [v for _, v in self.of(names)]) else None)

    def mean(self, names: Sequence[str]) -> float | None:
        return self._finite(sum(values) / len(values) if (values := [v for _, v in self.of(names)]) else None)

    @staticmethod
    def _finite(value: float | None) -> float | None:
        """A gauge of a server without requests may be NaN."""
        return value if value is not None and math.isfinite(value) else None


def is_scrape(text: str) -> bool:
    return bool(OURS.search(text))


def read_scrape(text: str, source: str, at_s: float | None = None) -> list[Scrape]:
    """Each model of a scrape. DeploymentError names the line that cannot be read."""
    found: dict[tuple[str, str], Scrape] = {}
    started = None
    for number, line in enumerate(text.splitlines(), 1):
        ours, start = OURS.match(line), STARTED.match(line)
        if not ours and not start:
            continue
        if number > MOST_SAMPLES:
            raise DeploymentError(f"has more than {MOST_SAMPLES:,} lines")
        if len(line) > MOST_LINE:
            raise DeploymentError(f"has a line of more than {MOST_LINE:,} characters (line {number})")
        name, labels, value, stamp = _sample(line, number)
        if start:
            started = value if started is None else min(started, value)
            continue
        assert ours is not None
        framework, metric = ours[1], ours[2]
        scrape = found.setdefault((framework, labels.pop("model_name", "")), Scrape(source, framework, ""))
        if metric.endswith("_created"):
            scrape.started_s = min(value, scrape.started_s or value)
            continue
        if any(labels.pop(rank, "0") not in ("0", "") for rank in RANKS):
            continue
        if stamp:
            scrape.at_s = stamp
        scrape.samples.setdefault(metric, []).append((frozenset(labels.items()), value))
    for (framework, model), scrape in found.items():
        scrape.model, scrape.at_s = model, scrape.at_s or at_s
        if len(found) == 2 and model and (nameless := found.get((framework, ""))):  # such as the size of the cache
            scrape.samples = {**nameless.samples, **scrape.samples}
        scrape.started_s = started or scrape.started_s
    known = [s for s in found.values() if any(name in s.samples for name in (*RUNNING, *REQUESTS, *PROMPT, *USAGE))]
    known = [s for s in known if s.model] or known
    if not known:
        raise DeploymentError(
            "has metrics of vLLM or SGLang, but neither requests nor tokens; give the whole text of /metrics"
        )
    return known


def _sample(line: str, number: int) -> tuple[str, dict[str, str], float, float | None]:
    """(name, labels, value, Unix time in s) of one line."""
    try:
        family = next(iter(text_string_to_metric_families(line + "\n")))
        sample = family.samples[0]
        value, stamp = float(sample.value), sample.timestamp
    except (ValueError, IndexError, KeyError, StopIteration, TypeError, AttributeError):
        raise DeploymentError(
            f"line {number} is not a Prometheus sample: {line[:60]!r}; the scrape may be cut off"
        ) from None
    # the parser divides a time in ms by 1,000, which some collectors already write in s
    at = float(stamp) if stamp is not None else None
    at = at * 1e3 if at is not None and at < 1e8 else at
    return sample.name, dict(sample.labels), value, at


def records_of(scrapes: Iterable[Scrape], window_s: float | None = None) -> list[Record]:
    """One record for each model: scrapes of one server at two times give what happened between them."""
    groups: dict[tuple[str, str], list[Scrape]] = {}
    for scrape in scrapes:
        groups.setdefault((scrape.framework, scrape.model), []).append(scrape)
    return [_record(group, window_s) for group in groups.values()]


def _record(group: Sequence[Scrape], window_s: float | None) -> Record:
    servers: dict[float | None, list[Scrape]] = {}
    for scrape in group:
        servers.setdefault(scrape.started_s, []).append(scrape)
    spans, notes = [], []
    for scrapes in servers.values():
        scrapes.sort(key=lambda s: (s.total(GENERATED) or 0.0, s.at_s or 0.0))
        spans.append((scrapes[0] if len(scrapes) > 1 else None, scrapes[-1]))
    windows = [_window(first, last, window_s) for first, last in spans]
    whole = max((w for w in windows if w), default=None)
    if whole is None:
        notes.append(
            "the scrape does not say over which time it counts, so there are no rates; give a second scrape or --window"
        )
    elif any(first is None for first, _ in spans) and window_s is None:
        notes.append("counts since the server started; two scrapes under load say more")
    last = spans[0][1]
    counters: dict[str, list[tuple[Labels, float]]] = {}
    for first, after in spans:
        for name, samples in after.samples.items():
            before = dict(first.samples.get(name, [])) if first else {}
            if any(value < before.get(labels, 0.0) for labels, value in samples) and not _is_gauge(name):
                before = {}  # the server was restarted
            for labels, value in samples:
                change = value - before.get(labels, 0.0) if not _is_gauge(name) else value
                counters.setdefault(name, []).append((labels, change))
    moved = Scrape(last.source, last.framework, last.model, counters)
    gauges = Scrape(last.source, last.framework, last.model, {})
    for scrape in group:
        for name, samples in scrape.samples.items():
            if _is_gauge(name):
                gauges.samples.setdefault(name, []).extend(samples)
    moments = len(group) / len(spans)
    settings, per_server = _settings(last)
    return Record(
        kind="metrics",
        source=", ".join(dict.fromkeys(s.source for s in group)),
        settings=settings,
        seen=_seen(moved, gauges, moments, whole, per_server, len(spans)),
        names=(tail(last.model),) if last.model else (),
        notes=tuple(notes),
    )


def _window(first: Scrape | None, last: Scrape, given: float | None) -> float | None:
    if given:
        return given
    if first is not None and first.at_s and last.at_s and last.at_s > first.at_s:
        return last.at_s - first.at_s
    if first is None and last.at_s and last.started_s and last.at_s > last.started_s:
        return last.at_s - last.started_s
    return None


GAUGES = {
    *RUNNING, *WAITING, *USAGE, *HIT_RATE, "gen_throughput", "spec_accept_length", "max_total_num_tokens",
    "num_used_tokens", "cache_config_info", "spec_accept_rate", "spec_decode_draft_acceptance_rate",
}  # fmt: skip


def _is_gauge(name: str) -> bool:
    return name in GAUGES


def _settings(scrape: Scrape) -> tuple[Settings, float | None]:
    """(what the metrics say about the start, KV cache of the server in tokens)."""
    found: dict[str, Any] = {}
    tokens = 0.0
    for labels, _ in scrape.of(("cache_config_info",)):
        label = dict(labels)
        for key, setting in INFO.items():
            value = label.get(key, "None")
            if setting == "memory_fraction" and re.fullmatch(r"[01]?\.?\d{1,9}", value):
                found[setting] = float(value)
            elif setting == "prefix_caching" and value in ("True", "False"):
                found[setting] = value == "True"
            elif setting == "kv_dtype" and value not in ("auto", "None"):
                found[setting] = value[:40]
        blocks, size = (label.get(key, "") for key in ("num_gpu_blocks", "block_size"))
        if re.fullmatch(r"\d{1,9}", blocks) and re.fullmatch(r"\d{1,5}", size):
            tokens += int(blocks) * int(size)
    tokens = tokens or scrape.total(("max_total_num_tokens",)) or 0.0
    settings = Settings(framework=scrape.framework, served_name=scrape.model[:300] or None, **found)
    return settings, tokens or None


def _seen(
    moved: Scrape, gauges: Scrape, moments: float, window_s: float | None, tokens: float | None, servers: int
) -> Seen:
    latencies: dict[str, Any] = {name: _histogram(moved, names, 1e3) for name, names in LATENCIES.items()}
    lengths: dict[str, Any] = {name: _histogram(moved, names, 1.0) for name, names in LENGTHS.items()}
    requests, prompt, generated = (moved.total(names) for names in (REQUESTS, PROMPT, GENERATED))
    if not requests:
        requests = next((v for n in LATENCIES["e2e_ms"] if (v := moved.total((f"{n}_count",)))), requests)
    for name, tokens_of in (("input_tokens", prompt), ("output_tokens", generated)):
        if not lengths[name] and requests and tokens_of:
            lengths[name] = exact({"mean": tokens_of / requests})
    if not latencies["tpot_ms"]:
        latencies["tpot_ms"] = _mean_tpot(moved, latencies["itl_ms"])
    queries, hits = moved.total(QUERIES), moved.total(HITS)
    cached = moved.total(("cached_tokens_total",))
    hit = hits / queries if hits is not None and queries else cached / prompt if cached is not None and prompt else None
    drafts, drafted, accepted = (moved.total(names) for names in (DRAFTS, DRAFTED, ACCEPTED))
    shown = gauges.mean(("spec_accept_length",))

    def rate(count: float | None) -> float | None:
        return count / window_s if count is not None and window_s else None

    def at_a_time(names: Sequence[str]) -> float | None:
        total = gauges.total(names)
        return total / moments if total is not None else None

    return Seen(
        window_s=window_s,
        completed=round(requests) if requests is not None and math.isfinite(requests) else None,
        failed=round(moved.total(FAILED) or 0),
        requests_per_s=rate(requests),
        input_tokens_per_s=rate(prompt),
        output_tokens_per_s=rate(generated),
        running=_at_once(moved, ("request_inference_time_seconds_sum",), window_s, at_a_time(RUNNING)),
        waiting=_at_once(moved, [f"{name}_sum" for name in LATENCIES["queue_ms"]], window_s, at_a_time(WAITING)),
        kv_used_fraction=gauges.mean(USAGE),
        prefix_hit_fraction=hit if hit is not None else gauges.mean(HIT_RATE),
        preemptions=round(p) if (p := moved.total(PREEMPTIONS)) is not None else None,
        tokens_per_draft=accepted / drafts
        if accepted is not None and drafts
        else shown - 1
        if shown and shown > 1
        else None,
        acceptance=accepted / drafted if accepted is not None and drafted else None,
        kv_capacity_tokens=tokens,
        servers=servers,
        **lengths,
        **latencies,
    )


def _at_once(moved: Scrape, names: Sequence[str], window_s: float | None, gauge: float | None) -> float | None:
    """The mean number of requests over the window, from the time that all spent; else that of the scraped moments."""
    spent_s = moved.total(names)
    return spent_s / window_s if spent_s is not None and window_s else gauge


def _mean_tpot(moved: Scrape, between: Spread) -> Spread:
    """The mean per token: of the gaps, or of the time to decode over the tokens after the first."""
    if "mean" in between:
        return {"mean": between["mean"]}
    decode, count = (moved.total((f"request_decode_time_seconds_{end}",)) for end in ("sum", "count"))
    tokens = moved.total(("request_generation_tokens_sum",))
    if decode is None or not count or tokens is None or tokens <= count:
        return {}
    return exact({"mean": 1e3 * decode / (tokens - count)})


def _histogram(moved: Scrape, names: Sequence[str], scale: float) -> Spread:
    """Mean, and quantiles as the bounds of their buckets."""
    for name in names:
        count, whole = moved.total((f"{name}_count",)), moved.total((f"{name}_sum",))
        buckets: dict[float, float] = {}
        for labels, value in moved.of((f"{name}_bucket",)):
            try:
                edge = float(dict(labels).get("le", "nan"))
            except ValueError:
                continue
            buckets[edge] = buckets.get(edge, 0.0) + value
        count = count or buckets.get(math.inf)
        if not count or not math.isfinite(count):
            continue
        found: Spread = exact({"mean": scale * whole / count}) if whole is not None and math.isfinite(whole) else {}
        for key, share in QUANTILES.items():
            if (bounds := _bucket(buckets, share * count)) is not None:
                found[key] = (scale * bounds[0], scale * bounds[1])
        if found:
            return found
    return {}


def _bucket(buckets: Mapping[float, float], rank: float) -> Range | None:
    """Bounds of the bucket that holds this many values from below."""
    low = 0.0
    for edge in sorted(e for e in buckets if not math.isnan(e)):
        if buckets[edge] >= rank:
            return low, edge
        low = max(edge, 0.0)
    return None
