"""Result files of load generators, and the table that a load generator prints, as records of a deployment."""

from advisor.deployments.flags import SGLANG, settings_of
from advisor.deployments.manifests import names
from advisor.deployments.records import DeploymentError, Record, Seen, Settings, exact
from advisor.load_results import LoadResult, LoadResultError, percentiles_of, text_format, usable_runs
from catalog.loading.bounded import Bounds


def is_text(text: str) -> bool:
    """Whether a text that is no JSON is the result of a load generator: a printed table, CSV or YAML."""
    return bool(text_format(text))


def read_results(text: str, source: str, bounds: Bounds) -> list[Record]:
    """Each run of a result file. DeploymentError: it is none, or not valid."""
    try:
        return [_record(run, f"{source} {run.place}".rstrip()) for run in usable_runs(text, bounds)]
    except LoadResultError as error:
        raise DeploymentError(f"is refused: {error}") from None


def _settings(run: LoadResult) -> Settings:
    """Of the server: the start options that SGLang's client copies from it, else what the client was told."""
    if run.server:
        given = {k: v for k, v in run.server.items() if k in SGLANG}
        version = run.framework_version[:40] or None
        settings, _ = settings_of(given, SGLANG, "sglang", version)
        ranks = (settings.tp or 1) * (settings.pp or 1) * (1 if settings.dp_attention else settings.dp or 1)
        return Settings(accelerators=ranks).over(settings)
    return Settings(
        framework=run.framework or None, version=run.framework_version or None, model=run.model or None,
        accelerator=run.accelerator or None, accelerators=run.accelerators, tp=run.tp, pp=run.pp,
    )  # fmt: skip


def _record(result: LoadResult, source: str) -> Record:
    stated = _settings(result)
    lengths = {name: percentiles_of(values) for name, values in (result.requests or {}).items() if name != "arrival_s"}
    seen = Seen(
        window_s=result.duration_s,
        completed=result.completed,
        failed=result.failed,
        concurrency=result.concurrency,
        rate_per_s=result.rate_per_s,
        arrival_cv=result.arrival_cv if result.rate_per_s else None,
        requests_per_s=result.requests_per_s,
        input_tokens_per_s=rate * mean
        if (rate := result.requests_per_s) and (mean := result.input_tokens_mean)
        else None,
        output_tokens_per_s=result.output_tokens_per_s,
        input_tokens=exact(lengths.get("input_tokens") or _known(result.input_tokens_mean, result.input_tokens_p95)),
        output_tokens=exact(
            lengths.get("output_tokens") or _known(result.output_tokens_mean, result.output_tokens_p95)
        ),
        ttft_ms=exact(result.ttft_ms),
        tpot_ms=exact(result.tpot_ms),
        itl_ms=exact(result.itl_ms),
        e2e_ms=exact(result.e2e_ms),
    )
    return Record(kind="result", source=source, settings=stated, seen=seen, names=names(stated), result=result)


def _known(mean: float | None, p95: float | None) -> dict[str, float]:
    return {name: value for name, value in (("mean", mean), ("p95", p95)) if value is not None}
