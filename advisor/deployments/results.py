"""Result files of load generators, and the table that a load generator prints, as records of a deployment."""

import re
from collections.abc import Mapping
from typing import Any

from advisor.deployments.flags import OPTIONS, SGLANG, settings_of
from advisor.deployments.manifests import names
from advisor.deployments.records import DeploymentError, Record, Seen, Settings, exact
from advisor.evidence import FORMATS, EvidenceError, recognized
from advisor.load_tests import LoadResult, LoadResultError, percentiles_of, read_result, read_runs
from catalog.loading.bounded import BoundedError, Bounds, read_json

PRINTED = re.compile(r"={1,20} (?:Serving )?Benchmark Result ={1,60}")
LABELS = {  # of the printed table, without their unit -> key of the JSON
    "successful requests": "completed", "failed requests": "failed", "benchmark duration": "duration",
    "maximum request concurrency": "max_concurrency", "max request concurrency": "max_concurrency",
    "request rate configured": "request_rate", "traffic request rate": "request_rate",
    "total input tokens": "total_input_tokens", "total generated tokens": "total_output_tokens",
    "request throughput": "request_throughput", "output token throughput": "output_throughput",
}  # fmt: skip
STATISTIC = re.compile(r"(mean|median|p50|p90|p95|p99) (ttft|tpot|itl|e2el|e2e latency)", re.IGNORECASE)


def is_printed(text: str) -> bool:
    return bool(PRINTED.search(text))


def read_results(text: str, source: str, bounds: Bounds) -> list[Record]:
    """Each run of a result file. DeploymentError: it is none, or not valid."""
    try:
        if is_printed(text):
            model = re.search(r"\bmodel='([^'\n]{1,200})'", text)  # of the arguments, which the client prints first
            return [_record(read_result(t), source, Settings(model=model[1] if model else None)) for t in _tables(text)]
        known = _readings(text)
        if known and known[0] == "aiperf" and not text.lstrip().startswith(("{", "[")):
            raise LoadResultError("Give the JSON of AIPerf (profile_export_aiperf.json); its CSV lacks the settings.")
        runs = read_runs(text.encode(), bounds)
    except LoadResultError as error:
        raise DeploymentError(f"is refused: {error}") from None
    settings = known[1] if known and len(known[1]) == len(runs) else [Settings()] * len(runs)
    servers = _servers(text, bounds)
    settings = (
        [server.over(s) for server, s in zip(servers, settings, strict=True)] if len(servers) == len(runs) else settings
    )
    return [_record(run, f"{source} {place}".rstrip(), s) for (place, run), s in zip(runs, settings, strict=True)]


def _readings(text: str) -> tuple[str, list[Settings]] | None:
    """(format, what each run says of the server), as imports of published figures read it."""
    try:
        name = recognized(text)
        return name, [
            _settings(each.said) for each in FORMATS[name](text) if not each.skipped.startswith("completed no")
        ]
    except (EvidenceError, BoundedError):
        return None


def _settings(said: Mapping[str, str]) -> Settings:
    framework, _, version = said.get("framework", "").partition(" ")
    sizes = (("tp", "tp"), ("pp", "pp"), ("accelerators", "n_accelerators"))
    whole: dict[str, Any] = {
        ours: int(said[theirs]) for ours, theirs in sizes if re.fullmatch(r"[1-9]\d{0,3}", said.get(theirs, ""))
    }
    return Settings(
        framework=framework if framework in OPTIONS else None, version=version or None, model=said.get("model") or None,
        accelerator=said.get("accelerator") or None, **whole,
    )  # fmt: skip


def _servers(text: str, bounds: Bounds) -> list[Settings]:
    """The start options that SGLang's client copies from the server."""
    found = []
    for line in text.splitlines() if "server_info" in text[:20_000] else ():
        try:
            run = read_json(line, bounds) if line.strip() else None
        except BoundedError:
            return []
        info = run.get("server_info") if isinstance(run, dict) else None
        if isinstance(info, dict):
            inner = info.get("internal_states")
            more = inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else {}
            given = {k: v for k, v in {**more, **info}.items() if k in SGLANG}
            version = info.get("version")
            settings, _ = settings_of(given, SGLANG, "sglang", str(version)[:40] if version else None)
            ranks = (settings.tp or 1) * (settings.pp or 1) * (1 if settings.dp_attention else settings.dp or 1)
            found.append(Settings(accelerators=ranks).over(settings))
    return found


def _tables(text: str) -> list[dict[str, Any]]:
    """The printed tables as the JSON files have them."""
    found = []
    for part in PRINTED.split(text)[1:]:
        part = part[:10_000]
        table: dict[str, Any] = {}
        for label, value in re.findall(
            r"^\s*([A-Za-z][^:\n]*?)(?:\s*\([^)\n]*\))?:\s+([\d.,]+|inf)\s*$", part, re.MULTILINE
        ):
            key = LABELS.get(label.strip().lower())
            if match := STATISTIC.fullmatch(label.strip()):
                key = f"{match[1].lower()}_{match[2].lower().replace(' ', '_')}_ms"
            if key and key not in table:
                table[key] = (
                    value if value == "inf" else float(value.replace(",", "")) if value.count(".") < 2 else None
                )
        if table:
            found.append(table)
    return found


def _record(result: LoadResult, source: str, settings: Settings) -> Record:
    framework = result.tool if result.tool in ("vllm", "sglang") and settings.framework is None else settings.framework
    stated = Settings(framework=framework if result.tool == "sglang" else settings.framework).over(settings)
    lengths = {name: percentiles_of(values) for name, values in (result.requests or {}).items() if name != "arrival_s"}
    seen = Seen(
        window_s=result.duration_s,
        completed=result.completed,
        failed=result.failed,
        concurrency=result.concurrency,
        rate_per_s=result.rate_per_s,
        arrival_cv=result.arrival_cv if result.rate_per_s else None,
        requests_per_s=result.requests_per_s,
        input_tokens_per_s=result.requests_per_s * result.input_tokens_mean if result.input_tokens_mean else None,
        output_tokens_per_s=result.output_tokens_per_s,
        input_tokens=exact(lengths.get("input_tokens") or _known(result.input_tokens_mean, result.input_tokens_p95)),
        output_tokens=exact(
            lengths.get("output_tokens") or _known(result.output_tokens_mean, result.output_tokens_p95)
        ),
        ttft_ms=exact(result.ttft_ms),
        tpot_ms=exact(result.tpot_ms),
        e2e_ms=exact(result.e2e_ms),
    )
    return Record(kind="result", source=source, settings=stated, seen=seen, names=names(stated), result=result)


def _known(mean: float | None, p95: float | None) -> dict[str, float]:
    return {name: value for name, value in (("mean", mean), ("p95", p95)) if value is not None}
