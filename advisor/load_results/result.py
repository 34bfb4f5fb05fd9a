"""What one run of a load generator states, whichever tool wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

Figures = dict[str, float]  # those of mean, p50, p95 and p99 that the file has
Requests = dict[str, list[float]]  # arrival_s (unless the file has lengths alone), input_tokens, output_tokens
SEATS, RATE, RECORDED, UNLIMITED = "seats", "rate", "recorded", "unlimited"


class LoadResultError(ValueError):
    """The file is not a valid result; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """What one run measured on one server; None or empty if the file does not state it."""

    tool: str  # vllm | sglang | guidellm | aiperf | genai-perf | inference-perf | llmperf
    completed: int
    failed: int = 0
    place: str = ""  # in a file with several runs, such as `run 2`
    unusable: str = ""  # why none of its figures can be used
    tool_version: str = ""
    ran_at: str = ""  # as in the file
    duration_s: float | None = None
    requests_per_s: float | None = None
    arrivals: str = ""  # SEATS, RATE, RECORDED (a trace), or UNLIMITED (all at once, unless the client had a trace)
    concurrency: float | None = None  # concurrent requests of a closed loop; None: open loop
    rate_per_s: float | None = None  # that the client sent at; None: a closed loop, or recorded arrivals
    limit_per_s: float | None = None  # the rate of a client whose concurrency held requests back
    arrival_cv: float = 1.0  # coefficient of variation of the gaps between arrivals at a rate
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    input_tokens_p95: float | None = None
    output_tokens_p95: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    ttft_ms: Figures = field(default_factory=dict)
    tpot_ms: Figures = field(default_factory=dict)  # per request, (end - first token) / (tokens - 1)
    itl_ms: Figures = field(default_factory=dict)  # between chunks of all requests
    e2e_ms: Figures = field(default_factory=dict)
    requests: Requests | None = None  # those that were served, by arrival
    settings: str = ""  # of the client, as KEY=VALUE;...
    model: str = ""
    accelerator: str = ""
    framework: str = ""  # of the server
    framework_version: str = ""
    accelerators: int | None = None
    tp: int | None = None  # accelerators that share one attention replica
    pp: int | None = None
    attention_dp: int | None = None
    ep: int | None = None
    speculative: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)  # options of the server, where the client asked for them

    def as_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "server"}

    @property
    def load(self) -> str:
        """The place and the load in words."""
        load = "" if self.rate_per_s is None else f"{self.rate_per_s:.4g} requests/s"
        load = f"{self.concurrency:.4g} concurrent requests" if self.concurrency else load
        load = load or {RECORDED: "recorded arrivals", UNLIMITED: "all requests at once"}.get(self.arrivals, "")
        return f"{self.place} ({load})" if load else self.place
