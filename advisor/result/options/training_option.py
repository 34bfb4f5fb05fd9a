"""A recommended training run: layout, step, time, goodput, scaling, cost."""

from typing import Annotated, Literal

from pydantic import Field

from advisor.result.base import (
    Bytes,
    BytesPerSecond,
    Chips,
    Count,
    Flops,
    Fraction,
    Gib,
    KilowattHours,
    Number,
    Seconds,
    Section,
    TokensPerSecond,
    Unit,
    Usd,
    UsdPerHour,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
)
from advisor.result.money import Money
from advisor.result.options.launch import Launch
from advisor.result.options.option import Beats, Operator, Purchase
from advisor.result.training import Days, MeasuredRun, Phase, TeraflopsPerSecond, TrainingIntervals, TrainingLayout

KgCo2e = Annotated[float, Unit("kg CO2e")]
UPDATE = "policy update"  # the phase whose ledger and memory the option shows
EngineerDays = Annotated[float, Unit("engineer-days")]


class GoodputParts(Section):
    """Where the time of the run goes: training, and what interruptions and checkpoints take. The fractions add up."""

    fraction: Fraction
    """Training over elapsed time."""
    low_fraction: Fraction
    """With failures, repairs, restarts and storage at the bad ends of their ranges (combined as independent)."""
    high_fraction: Fraction
    """With them at the good ends."""
    checkpoint_fraction: Fraction
    """Standing still while a checkpoint is taken."""
    rework_fraction: Fraction
    """Work since the last checkpoint, done again after an interruption."""
    restart_fraction: Fraction
    """Restarts after interruptions, and on spot the wait for new instances."""
    waiting_fraction: Fraction
    """Waiting for a host in repair."""
    interruptions: Number
    """Expected in the whole run."""
    interruptions_low: Number
    """5% of runs have no more, at the low end of the failure rate."""
    interruptions_high: Number
    """95% of runs have no more, at the high end of the failure rate."""
    checkpoint_s: Seconds
    """Time to write a checkpoint; training goes on during most of it."""
    checkpoint_gib: Gib
    """Size of a checkpoint: weights, master copy and optimizer states."""
    straggler_ratio: Annotated[float, Unit("ratio")]
    """Step of the slowest rank over that of a mean one."""


class ScalingPoint(Section):
    """The same run on another number of these accelerators."""

    accelerator_count: Chips
    """Accelerators."""
    step_s: Seconds
    """Time of one step."""
    tokens_per_s_per_accelerator: TokensPerSecond
    """Speed of each."""
    goodput_fraction: Fraction
    """Training over elapsed time."""
    days: Days
    """Of the run."""
    usd_total: Usd
    """Present value of the plan."""
    usd_per_run: Usd | None = None
    """Payments for one run, less resale, without discounting."""
    gain_fraction: Fraction | None
    """Speed gained over accelerators added, since the size before: 1 is perfect scaling; null at the first size."""
    layout: str
    """Parallel sizes."""
    provider: str = ""
    """Who rents or sells the machines of this size; own: bought."""


class Storage(Section):
    """What the run asks of its shared storage."""

    capacity_bytes: Bytes
    """Checkpoints that are kept (tco.training-checkpoints-kept) and the data."""
    write_bytes_per_s: BytesPerSecond
    """While a checkpoint is written."""
    load_bytes_per_s: BytesPerSecond
    """Training data, all the time."""
    said: str
    """The same in words."""


class Serving(Section):
    """Serving the trained model on another vendor's accelerators than those it was trained on."""

    stack: str
    """The software stack to serve on."""
    engineer_days: list[EngineerDays]
    """To bring the model there and check its answers, once: low, expected, high for the team's skill."""
    usd: list[Usd]
    """The same as a cost."""
    said: str
    """The same in words."""


class TrainingStep(Section):
    """One step of the optimization plan: a technique, and what it changes on this accelerator."""

    name: str
    """The technique."""
    said: str
    """What it does, and what it costs."""
    step_s: Seconds | None
    """Time of a step once it is applied; null: it does not fit in memory yet."""
    tokens_per_s: TokensPerSecond | None
    """Speed once it is applied."""
    peak_gib: Gib | None
    """Peak memory of a rank once it is applied."""
    gain_ratio: Annotated[float, Unit("ratio")] | None
    """Speed over the step before."""


class TrainingOption(Purchase, TrainingLayout):
    """A recommended training run."""

    kind: Literal["training", "finetuning"]
    """training or finetuning."""
    rank: Count | None
    """1 is best."""
    label: str
    """The run in one line."""
    spare_hosts: Count
    """Hosts that stand by and are paid."""
    term: str
    """on_demand, spot, reserved_1y, reserved_3y, capacity_block, purchase or owned."""
    price_source: str
    """Where the price was read."""
    framework: str
    """Training framework of the launch files."""
    framework_version: str = ""
    """Release whose options were checked."""
    step_s: Seconds
    """Time of one step, with the slowest of the ranks; of DPO and GRPO the whole iteration."""
    tokens_per_s: TokensPerSecond
    """Trained tokens on all accelerators, while the run trains."""
    tokens_per_s_per_accelerator: TokensPerSecond
    """The same per accelerator."""
    tflops_per_accelerator: TeraflopsPerSecond
    """Model FLOPs per second and accelerator, without recomputation."""
    mfu: Fraction
    """Model FLOPs utilization."""
    hfu: Fraction
    """Hardware FLOPs utilization: with recomputation."""
    exposed_communication_fraction: Fraction
    """Share of the step that communication takes and nothing hides."""
    bubble_fraction: Fraction
    """Share of the step that the pipeline's bubble takes."""
    bound: str
    """What takes most of the step (policy update): compute, memory, communication, bubble or host."""
    objective: str = "sft"
    """sft (supervised), dpo or grpo."""
    phases: list[Phase] = []
    """Parts of a DPO step or a GRPO iteration, whose time is step_s with stragglers; absent for sft."""
    generation_fraction: Fraction | None = None
    """Share of the iteration that generates and scores responses; null where nothing is generated."""
    reference_gib: Gib = 0.0
    """Reference and reward model on an accelerator during the update, beside `memory`; 0: none."""
    tokens: Number
    """Tokens that the run trains on; of DPO with padding, pairs x 2 x sequence_length; of GRPO without, iterations x
    responses x the mean of prompt and response."""
    tokens_per_parameter: Number
    """Tokens over parameters; about 20 is compute-optimal for pre-training from scratch (Hoffmann et al. 2022)."""
    model_flops: Flops
    """Model FLOPs of the run."""
    steps: Count
    """Optimizer steps of the run."""
    days: Days
    """From the first step to the last token, interruptions included."""
    accelerator_hours: Number
    """Accelerators times hours, spares not counted."""
    deadline_days: Days | None
    """Deadline; null: none."""
    every_days: Days | None
    """The run is repeated so often; null: it is done once."""
    goodput_fraction: Fraction
    """Training over elapsed time."""
    goodput: GoodputParts
    """Where the rest goes."""
    checkpoint_interval_s: Seconds | None
    """Time of training between checkpoints that costs least; null: nothing fails."""
    storage: Storage
    """What the run asks of its storage."""
    scaling: list[ScalingPoint]
    """The run on other numbers of these accelerators."""
    scaling_said: str
    """Where more accelerators stop paying."""
    serve_elsewhere: list[Serving] = []
    """What it takes to serve the trained model on other vendors' accelerators."""
    usd_total: Usd
    """Present value of everything that the plan pays."""
    usd_per_run: Usd
    """Payments for one run, less resale, without discounting."""
    usd_per_mtok: UsdPerMtok
    """usd_per_run over the tokens of a run, per million."""
    usd_per_accelerator_hour: UsdPerHour
    """usd_per_run over accelerator_hours."""
    usd_per_hour: UsdPerHour
    """Cost averaged over all hours of the plan."""
    usd_per_month: UsdPerMonth
    """Equal monthly payment over the months of the plan."""
    tco_usd: Usd
    """usd_total."""
    watts: Watts | None
    """Mean draw while it trains, hosts and cooling included; null: not published."""
    kwh: KilowattHours | None
    """Energy of a run."""
    kgco2e: KgCo2e | None
    """Carbon of a run; null: power or grid not known."""
    money: Money | None = None
    """Bill, plan, cash flow and other ways to pay."""
    interval: TrainingIntervals = Field(default_factory=TrainingIntervals)
    """90% intervals."""
    deadline_probability: Fraction | None = None
    """Probability of meeting the deadline; null without a deadline or intervals."""
    first_probability: Fraction | None = None
    """Probability of being the best of the options shown."""
    beats: list[Beats] | None = None
    """Probability of costing less than each option that ranks behind it."""
    launch: Launch
    """How to start it."""
    launch_notes: list[str] = []
    """What to do before the launch, and what the launcher does differently from the plan."""
    step: list[Operator] = []
    """Ledger of one step on one rank; of DPO and GRPO the policy update."""
    evidence: list[MeasuredRun] = []
    """Speed and peak memory of the most similar measured runs, beside what is predicted there."""
    optimization: list[TrainingStep] = []
    """What each technique of the layout gains on this accelerator."""
    optimization_notes: list[str] = []
    """Stability and loss scaling, with sources."""
    reasons: list[str]
    """Why it is recommended."""
    warnings: list[str]
    """What to check before signing."""

    @property
    def policy_update_s(self) -> float:
        """The part of step_s that trains; of supervised tuning all of it."""
        update = next((p.fraction for p in self.phases if p.name == UPDATE), 1.0)
        return self.step_s * (update or 0.0)

    @property
    def usd_per_run_range(self) -> list[float]:
        """90% interval of usd_per_run; empty where there is none."""
        if self.money is None or self.money.ranges is None or not self.money.usd_over_horizon:
            return []
        low, _, high = self.money.ranges.total_usd
        return [usd * self.usd_per_run / self.money.usd_over_horizon for usd in (low, high)]

    @property
    def is_embedding(self) -> bool:
        """It returns no vectors."""
        return False
