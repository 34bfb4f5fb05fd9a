"""How to run an option fast: optimization plan, formats, frameworks, pitfalls, roofline."""

from advisor.result.base import (
    Bits,
    Bytes,
    BytesPerSecond,
    Flops,
    FlopsPerByte,
    FlopsPerSecond,
    Milliseconds,
    Number,
    Ratio,
    Seconds,
    Section,
    Tokens,
    TokensPerSecond,
)


class SetupFigures(Section):
    """Estimated figures of one setup at its best load within the TPOT limit; null where the model does not fit."""

    output_tokens_per_s_per_accelerator: TokensPerSecond | None
    """Output throughput per accelerator."""
    tpot_ms: Milliseconds | None
    """Mean time per output token."""
    ttft_ms: Milliseconds | None
    """Mean time to first token."""
    concurrency: Number | None
    """Requests in flight per replica."""
    within_tpot_limit: bool | None = None
    """Whether the TPOT limit holds; absent when the model does not fit."""


class TuningStep(SetupFigures):
    """One technique of the optimization plan."""

    technique: str
    """Short name."""
    name: str
    """Display name."""
    state: str
    """base, used, not_used, possible or cannot."""
    change: str
    """What changes in the configuration."""
    gain_ratio: Ratio | None
    """Throughput after over before this step."""
    because: str
    """Why it is not used, or a note."""
    effort: str
    """Work it takes."""
    risk: str
    """What can go wrong."""
    needs: str
    """Requirements."""
    source: str
    """Source of its gain."""


class TuningPlan(Section):
    """From a naive deployment to the recommended one, one technique at a time."""

    gain_ratio: Ratio | None
    """Throughput of the whole plan over the naive deployment."""
    steps: list[TuningStep]
    """In the order of application."""


class FormatChoice(SetupFigures):
    """A weight format beside the plan's."""

    slug: str
    """Catalog name of the format."""
    name: str
    """Display name."""
    state: str
    """plan, possible or cannot."""
    bits_per_weight: Bits
    """Storage per weight, scales included."""
    native: bool
    """Whether the accelerator multiplies in this format."""
    framework: str | None
    """Framework and version that would serve it; null: none can."""
    gain_ratio: Ratio | None
    """Throughput over the plan's."""
    why: str
    """What speaks for or against it."""
    quality: str
    """lossless, near_lossless or lossy."""
    quality_note: str
    """Published quality results."""
    quality_source: str
    """Their source."""
    effort: str = ""
    """Work to make a checkpoint; absent when it cannot be used."""
    made_on: str = ""
    """Hardware to make it on."""
    check: str = ""
    """How to check its quality."""
    warning: str
    """Known trap; empty: none."""


class CacheFormatChoice(SetupFigures):
    """A KV cache format beside the plan's."""

    dtype: str
    """Storage type of keys and values."""
    state: str
    """plan, possible or cannot."""
    framework: str | None
    """Framework and version that would use it; null: none can."""
    gain_ratio: Ratio | None
    """Throughput over that of a 16-bit cache."""
    plan_ratio: Ratio | None
    """Throughput over the plan's."""
    why: str
    """What speaks for or against it."""
    quality: str
    """lossless, near_lossless or lossy."""
    quality_source: str
    """Source of that."""
    effort: str = ""
    """Work to use it; absent when it cannot be used."""
    made_on: str = ""
    """Hardware that the work needs."""
    check: str = ""
    """How to check its quality."""


class FrameworkChoice(SetupFigures):
    """A serving framework on the same hardware."""

    slug: str
    """Catalog name."""
    name: str
    """Display name."""
    version: str
    """Release."""
    best: bool
    """Whether it has the highest estimated throughput."""
    plan: bool
    """Whether it is the plan's."""
    kv_capacity_tokens: Tokens | None
    """KV cache of a replica."""
    features: list[str]
    """Features that the release has."""
    effort: str
    """Work to deploy it."""
    maturity: str
    """new, maturing or established."""
    maturity_because: str
    """Facts behind that word."""
    licence: str | None
    """License."""
    because: str
    """Why it is or is not chosen."""
    source: str
    """Source of its support for this hardware."""


class Pitfall(Section):
    """A mistake that is common with this setup."""

    slug: str
    """Short name."""
    what: str
    """What goes wrong."""
    remedy: str
    """What to do."""
    source: str
    """Source."""


class RooflinePhase(Section):
    """Where one phase sits under the roofline."""

    phase: str
    """prefill or decode."""
    flops: Flops | None
    """Arithmetic of one step on one accelerator."""
    bytes: Bytes | None
    """Memory traffic of one step on one accelerator."""
    time_s: Seconds | None
    """Duration of one step."""
    flops_per_byte: FlopsPerByte | None
    """Arithmetic intensity."""
    flops_per_s: FlopsPerSecond | None
    """Achieved arithmetic rate."""
    sequences: Number | None
    """Sequences in the step."""


class Roofline(Section):
    """Datasheet and achieved rates of the accelerator, and both phases."""

    dtype: str
    """Format of the matrix multiplications."""
    datasheet_flops_per_s: FlopsPerSecond | None
    """Peak arithmetic rate by the data sheet."""
    datasheet_bytes_per_s: BytesPerSecond | None
    """Peak memory bandwidth by the data sheet."""
    reached_flops_per_s: FlopsPerSecond | None
    """Arithmetic rate that kernels reach."""
    reached_bytes_per_s: BytesPerSecond | None
    """Memory bandwidth that kernels reach."""
    ridge_flops_per_byte: FlopsPerByte | None
    """Intensity at which achieved compute and memory limits meet."""
    basis: str
    """measured, relative or datasheet."""
    phases: list[RooflinePhase]
    """Prefill and decode."""
    sentences: list[str]
    """The same in words."""


class Tuning(Section):
    """How to run the option."""

    plan: TuningPlan | None
    """null: embeddings, or no naive deployment to start from."""
    formats: list[FormatChoice]
    """Weight formats."""
    cache_formats: list[CacheFormatChoice]
    """KV cache formats."""
    frameworks: list[FrameworkChoice]
    """Serving frameworks."""
    pitfalls: list[Pitfall]
    """Common mistakes."""
    roofline: Roofline
    """Achieved against possible."""
