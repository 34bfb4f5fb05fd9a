"""The figures of options, one row each: label, path, unit, which way is better, and where they are shown.

The tables for a terminal and in Markdown, the CSV, the sort keys and columns of the ranking, the comparison, the memo
and the pages of options all read these rows. To add a figure, add its field to the option, compute it, and add a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from advisor.result.hosted import ApiOption
from advisor.result.options.option import Option
from advisor.result.options.training_option import TrainingOption

Makes = tuple[str, ...]
TOKENS: Makes = ("tokens",)
VECTORS: Makes = ("vectors", "scores", "images")  # and other work that generates no tokens
SERVED: Makes = (*TOKENS, *VECTORS)
TRAINED: Makes = ("weights",)
USD, PER_MTOK, PROBABILITY = "USD", "USD per million tokens", "probability"
UNMEASURED = ("", "text", "items", PROBABILITY)  # units for which a difference in percent means nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure and the places that show it; an empty place does not. The order of the rows is that of every table."""

    label: str
    path: str  # in the option: ttft_ms.p95
    unit: str = ""  # how it is written; empty: a count or a text
    better: Literal["", "low", "high"] = ""  # empty: neither is better
    makes: Makes = ()  # the work for which it means this; empty: all
    jobs: bool | None = None  # True: the comparison shows it of batches alone; False: never of batches
    heading: str = ""  # of its column in the tables for a terminal and in Markdown
    csv: int = 0  # place among the columns of the CSV, which never changes; new ones come last
    sort: str = ""  # ?sort=; also a column of the ranking
    title: str = ""  # of that column; empty: the label
    group: str = ""  # of the comparison
    scenario: str = ""  # the field of a scenario's cost
    fixed: bool = False  # whether it is the same in every scenario; else a scenario does not compute it
    memo: str = ""  # part of the memo
    page: str = ""  # parts of the option's page
    term: str = ""  # entry of the glossary
    hint: str = ""  # behind the label on the option's page

    def applies(self, makes: str) -> bool:
        """Whether work that makes this has the figure."""
        return not self.makes or makes in self.makes

    @property
    def is_compared(self) -> bool:
        return self.unit not in UNMEASURED

    @property
    def column(self) -> str:
        """Its name in the CSV, and that of its interval."""
        return self.path.replace(".", "_")


def choice(label: str, path: str, **places: Any) -> Figure:
    """What is bought and started: the same in every scenario."""
    return Figure(label=label, path=path, **{"fixed": True, "group": "What to run", **places})


def cost(label: str, path: str, unit: str = USD, **places: Any) -> Figure:
    return Figure(label=label, path=path, unit=unit, better="low", **{"group": "Cost", **places})


def speed(label: str, path: str, unit: str = "", better: Literal["", "low", "high"] = "", **places: Any) -> Figure:
    return Figure(label=label, path=path, unit=unit, better=better, **{"group": "Performance", **places})


def trust(label: str, path: str, unit: str = "", **places: Any) -> Figure:
    return Figure(label=label, path=path, unit=unit, **{"group": "Confidence", **places})


def columns(paths: str, first: int) -> Iterable[Figure]:
    """Figures of training runs that the CSV alone shows, from this place on."""
    return (Figure(label=path, path=path, csv=first + i, makes=TRAINED) for i, path in enumerate(paths.split()))


GROUPS = ("What to run", "Cost", "Performance", "Confidence", "Price")
FIGURES: tuple[Figure, ...] = (
    Figure(label="Rank", path="rank", heading="#", csv=1, sort="rank"),
    choice("In one line", "label", csv=2),
    choice("In one line", "label", heading="deployment", group="", makes=SERVED),
    choice("In one line", "label", heading="run", group="", makes=TRAINED),
    choice("From", "place", heading="from", group=""),
    *columns("kind", 3),
    choice("Rent, buy or API", "ways"),
    choice("Accelerator", "accelerator", csv=4, group="", page="deployment"),
    choice("Accelerator", "accelerator_name"),
    choice("Accelerators", "accelerator_count", csv=5, fixed=False, page="deployment"),
    *columns("spare_hosts", 6),
    choice("Provider", "provider", csv=7, page="deployment"),
    choice("Instance", "instance", csv=8, page="deployment"),
    *columns("instances", 9),
    choice("Region", "region", csv=10, page="deployment"),
    choice("Acquisition", "acquisition", csv=11, group="", page="deployment"),
    *columns("term", 12),
    choice("Framework", "framework", csv=13, page="deployment"),
    choice("Framework version", "framework_version", csv=14, group="", page="deployment"),
    choice("Weights", "weights_dtype", csv=15, group="", makes=SERVED, page="deployment"),
    choice("Quantization", "quantization", csv=16, makes=SERVED, page="deployment"),
    choice("KV cache", "kv_dtype", csv=17, makes=SERVED, page="deployment"),
    choice("Parallel layout", "layout", makes=SERVED),
    choice("Tensor parallel", "tp", csv=18, group="", makes=SERVED, page="deployment"),
    choice("Pipeline parallel", "pp", csv=19, group="", makes=SERVED, page="deployment"),
    choice("Expert parallel", "ep", csv=20, group="", makes=SERVED, page="deployment"),
    choice("Attention data parallel", "dp", csv=21, group="", makes=SERVED, page="deployment"),
    choice("Replicas", "replicas", csv=22, makes=SERVED, fixed=False, page="deployment"),
    choice("Concurrent requests per replica", "concurrency", csv=23, makes=SERVED, page="deployment"),
    choice("Maximum batched tokens", "max_batched_tokens", csv=24, group="", makes=SERVED, page="deployment"),
    choice("Speculative decoding", "speculative", group="", makes=SERVED, page="deployment"),
    choice("Disaggregated prefill and decode", "disaggregated", group="", makes=SERVED, page="deployment"),
    *columns(
        "method adapter_rank precision optimizer dp tp pp cp ep virtual_stages zero recompute sequence_length "
        "micro_batch micro_batches global_batch_tokens peak_allocated_gib peak_reserved_gib usable_gib step_s",
        15,
    ),
    # cost
    cost("Cost of the run", "usd_per_run", heading="USD per run", csv=48, sort="usd", title="USD of the run",
         makes=TRAINED, page="tiles costs"),
    cost("Per hour", "usd_per_hour", "USD/h", csv=55, group="", makes=SERVED, page="costs"),
    cost("Per run", "batch.usd_per_run", makes=TOKENS, jobs=True, page="tiles costs"),
    cost("Per month", "usd_per_month", csv=56, scenario="usd_per_month"),
    cost("Per month", "usd_per_month", heading="USD/month", sort="month", title="USD per month", group="",
         makes=SERVED, page="tiles costs"),
    cost("Total over the horizon, not discounted", "money.usd_over_horizon", scenario="total_usd"),
    cost("Total over the horizon", "money.usd_over_horizon", group="", makes=SERVED, page="tiles"),
    cost("Purchases (capex)", "money.plan.capex_usd"),
    cost("Per M input tokens", "usd_per_mtok_input", PER_MTOK, csv=57, makes=SERVED, page="costs"),
    cost("Per M input tokens", "usd_per_mtok_input", PER_MTOK, heading="USD/M tokens", sort="mtok", group="",
         title="USD per M tokens", makes=VECTORS, memo="Money", page="tiles"),
    cost("Per M input tokens, at capacity", "usd_per_mtok_input_at_capacity", PER_MTOK, group="",
         makes=VECTORS, page="costs"),
    cost("Per M output tokens", "usd_per_mtok_output", PER_MTOK, heading="USD/M output", csv=58, sort="mtok",
         title="USD per M output tokens", makes=TOKENS, memo="Money", page="tiles costs"),
    cost("Per M output tokens, at capacity", "usd_per_mtok_output_at_capacity", PER_MTOK, group="",
         makes=TOKENS, page="costs"),
    cost("Per M tokens, blended", "usd_per_mtok_blended", PER_MTOK, csv=59, makes=SERVED, memo="Money",
         page="costs"),
    cost("Present value of costs", "tco_usd", page="costs", term="present value"),
    Figure(label="Present value of costs", path="tco_usd", csv=60, makes=SERVED),
    *columns("usd_total", 49),
    cost("Per M trained tokens", "usd_per_mtok", PER_MTOK, csv=50, makes=TRAINED, memo="Decision", page="costs"),
    cost("Per accelerator-hour", "usd_per_accelerator_hour", "USD/h", csv=51, group="", makes=TRAINED,
         page="costs"),
    # speed
    speed("TTFT p95", "ttft_ms.p95", "ms", "low", heading="TTFT p95 ms", csv=25, sort="ttft", makes=TOKENS,
          jobs=False),
    speed("TPOT p95", "tpot_ms.p95", "ms", "low", heading="TPOT p95 ms", csv=26, sort="tpot", makes=TOKENS,
          jobs=False),
    speed("Whole answer p95", "e2e_ms.p95", "ms", "low", makes=TOKENS, jobs=False),
    speed("Latency p95", "latency_ms.p95", "ms", "low", heading="latency p95 ms", csv=84, sort="latency",
          makes=VECTORS),
    speed("Duration of a run", "batch.run_hours", "h", "low", makes=TOKENS, jobs=True),
    speed("Time of the run", "days", "days", "low", heading="days", csv=43, sort="days", makes=TRAINED,
          page="tiles"),
    speed("Trained tokens", "tokens", "tokens", csv=41, group="", makes=TRAINED, page="tiles"),
    *columns("steps", 42),
    speed("Speed while training", "tokens_per_s", "tokens/s", "high", csv=35, makes=TRAINED, page="tiles"),
    speed("Tokens/s per accelerator", "tokens_per_s_per_accelerator", "tokens/s", heading="tok/s/chip", csv=36,
          sort="speed", group="", makes=TRAINED),
    *columns("tflops_per_accelerator", 37),
    speed("MFU", "mfu", "share", "high", heading="MFU", csv=38, sort="mfu", makes=TRAINED, page="tiles",
          term="MFU", hint="(model FLOPs over peak)"),
    *columns("hfu bound", 39),
    speed("Goodput", "goodput_fraction", "share", "high", heading="goodput", csv=45, sort="goodput",
          makes=TRAINED, page="tiles", term="goodput", hint="(time that trains)"),
    *columns("checkpoint_interval_s", 46),
    speed("Output at this load", "output_tokens_per_s", "tokens/s", heading="output tok/s", csv=27,
          makes=TOKENS, page="tiles"),
    speed("Output at capacity", "output_tokens_per_s_at_capacity", "tokens/s", group="", makes=TOKENS,
          page="tiles"),
    speed("Output per accelerator", "output_tokens_per_s_per_accelerator", "tokens/s", "high", makes=TOKENS),
    speed("Input at this load", "input_tokens_per_s", "tokens/s", heading="tokens/s", csv=85, makes=VECTORS,
          page="tiles"),
    speed("Input at capacity", "input_tokens_per_s_at_capacity", "tokens/s", group="", makes=VECTORS,
          page="tiles"),
    speed("Sequences/s", "sequences_per_s", "sequences/s", heading="sequences/s", csv=86, sort="sequences",
          group="", makes=VECTORS),
    speed("Requests served", "requests_per_s", "requests/s", csv=28, group="", makes=TOKENS, page="tiles"),
    speed("Sequences served", "requests_per_s", "requests/s", group="", makes=VECTORS, page="tiles"),
    speed("Requests served at capacity", "capacity_requests_per_s", "requests/s", "high", makes=SERVED, jobs=False),
    speed("Utilization", "utilisation", "fraction", heading="load", csv=29, makes=SERVED, page="tiles",
          term="utilization", hint="(load over capacity)"),
    speed("Free memory per accelerator", "memory.free_gib", "GiB", makes=SERVED),
    speed("Accelerator-hours", "accelerator_hours", "tokens", csv=44, group="", makes=TRAINED, page="costs"),
    speed("Model FLOPs", "model_flops", "FLOP", group="", makes=TRAINED, page="costs"),
    speed("Tokens per parameter", "tokens_per_parameter", group="", makes=TRAINED, page="costs"),
    speed("Trained parameters", "trained_parameters", "tokens", group="", makes=TRAINED, page="costs"),
    # energy
    speed("Average power, including cooling", "watts", "W", "low", csv=61, page="costs energy"),
    speed("Average power, including cooling", "watts", "W", sort="power", title="Power", group="",
          makes=SERVED, memo="Money"),
    speed("Energy per output token", "joules_per_output_token", "J", csv=62, group="", makes=TOKENS,
          page="costs energy"),
    speed("Energy per input token", "joules_per_input_token", "J", group="", makes=VECTORS, page="costs energy"),
    speed("Power per chip", "money.energy.power_said", group="", makes=SERVED, page="costs energy"),
    speed("Carbon per M output tokens", "kgco2e_per_mtok", "kg CO2e", "low", csv=64, makes=TOKENS,
          page="costs energy"),
    speed("Carbon per M tokens", "kgco2e_per_mtok", "kg CO2e", "low", makes=VECTORS, page="costs energy"),
    speed("Energy per month", "money.energy.kwh_per_month", "kWh", group="", makes=SERVED, memo="Money",
          page="energy"),
    speed("Carbon intensity of the grid", "money.energy.grid_kgco2e_per_kwh", "kg CO2e/kWh", group="",
          makes=SERVED, page="energy"),
    speed("Energy", "kwh", "kWh", csv=63, sort="kwh", title="Energy, kWh", group="", makes=TRAINED,
          page="tiles costs"),
    speed("Carbon", "kgco2e", "kg CO2e", "low", csv=64, makes=TRAINED, page="costs"),
    cost("USD per M tokens", "usd_per_mtok", PER_MTOK, heading="USD/M tokens", sort="mtok", group="",
         makes=TRAINED),
    speed("Bound by", "bound"),
    speed("Bound by", "bound", csv=75, group="", makes=SERVED, page="tiles"),
    # confidence
    trust("Evidence", "basis", "basis", heading="basis", csv=80, fixed=True),
    trust("Meets the SLO", "meets_slo", makes=SERVED, jobs=False),
    trust("Probability of meeting the SLO", "slo_probability", PROBABILITY, better="high", makes=SERVED, jobs=False),
    trust("Probability of meeting the deadline", "deadline_probability", PROBABILITY, better="high", csv=47,
          makes=TRAINED, page="tiles confidence"),
    trust("Probability of being the best option", "first_probability", PROBABILITY),
    trust("Probability of being the best option", "first_probability", PROBABILITY, group="", makes=TRAINED,
          page="confidence"),
    trust("Warnings", "warnings", "items"),
    # price
    choice("Origin", "price_origin", group="Price"),
    choice("Date", "price_as_of", group="Price", csv=81),
    choice("Read at", "price_source", group="Price", csv=82),
    choice("Weakness", "price_weakness", group="Price"),
    *columns("price_weakness", 83),
)  # fmt: skip

HOSTED: tuple[Figure, ...] = (  # of every hosted API of the model, ranked or not
    Figure(label="Hosted API", path="endpoint", heading="hosted API (pay per token)"),
    Figure(label="Accelerator", path="accelerator", unit="text", heading="accelerator"),
    Figure(label="Price date", path="as_of", heading="price as of"),
    cost("Per month", "usd_per_month", heading="USD/month"),
    Figure(label="Rank", path="rank", heading="rank"),
    cost("Per M input tokens", "usd_per_mtok_input", PER_MTOK, heading="USD/M input"),
    cost("Per M cached tokens", "usd_per_mtok_cached_input", PER_MTOK, heading="cached"),
    cost("Per M output tokens", "usd_per_mtok_output", PER_MTOK, heading="USD/M output"),
    speed("Published speed", "published_output_tokens_per_s", "tokens/s", "high", heading="published tok/s"),
    speed("Break-even", "break_even_tokens_per_month", "M tokens", heading="break-even Mtok/month"),
    Figure(label="Not ranked because", path="rejection.detail", unit="text", heading="not ranked because"),
)


def shown_in(place: str, makes: str) -> list[Figure]:
    """The figures of this work that have a place of this name: heading, csv, sort, memo, page."""
    return [figure for figure in FIGURES if getattr(figure, place) and figure.applies(makes)]


def csv_columns(trains: bool) -> list[Figure]:
    """The columns of the CSV, in its order: of training runs, or of every other kind of work."""
    work = TRAINED if trains else SERVED
    found = [figure for figure in FIGURES if figure.csv and any(figure.applies(makes) for makes in work)]
    return sorted(found, key=lambda figure: figure.csv)


def interval(option: Option | ApiOption | TrainingOption, figure: Figure) -> tuple[float | None, float | None]:
    """The 90% interval of a figure: of costs that of the draws, else that of the estimate."""
    ranges = option.money.ranges if option.money else None
    drawn = {"usd_per_month": ranges.usd_per_month, "money.usd_over_horizon": ranges.total_usd} if ranges else {}
    ends: Sequence[float | None] | None = drawn.get(figure.path) or getattr(option.interval, figure.column, None)
    if isinstance(option, TrainingOption) and figure.path == "usd_per_run":
        ends = option.usd_per_run_range
    return (ends[0], ends[-1]) if ends else (None, None)
