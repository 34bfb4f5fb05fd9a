"""The fastest layout of a model on each number of chips that an offer has, by model code and precision."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.engine.estimate import Resources
from advisor.engine.network import Model
from advisor.engine.search import Catalog, Question, efficiency_on
from advisor.engine.terms import OWNED, Accelerator, Offer, Rejection, TrainingTask, Workload
from advisor.engine.training import (
    BF16_MASTER,
    FRAMEWORKS,
    OFFLOADS_WITH,
    PRECISIONS,
    HostSide,
    Job,
    Layout,
    ModelCode,
    Offload,
    Parallel,
    Precision,
    Rates,
    Recompute,
    Run,
    Shape,
    StepTime,
    TrainingFramework,
    code_of,
    fastest,
    frameworks_of,
    has_precision,
    host_bytes,
    least_memory,
    offloads,
    rates_of,
    recipe_of,
    run_basis,
    searched_frameworks,
    started,
    step_time,
    trains,
)
from advisor.engine.training_search.phases import SERVING, Phase, Servers, Trainer, iteration, reward_bytes

HOSTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
MOST_CHIPS = 16_384  # of one job: the largest published run (Llama 3 405B)
COMPOSED = 4  # of the fastest layouts whose whole iteration is timed
ROUNDING = 6  # a global batch is rounded to a power of two of at most this part of it, so that it divides evenly


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a layout is searched with: its time and memory are those of the framework that its launch files start."""

    framework: str
    precision: Precision

    @property
    def code(self) -> ModelCode:
        return FRAMEWORKS[self.framework].code


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The fastest layout that fits so many chips, and its step."""

    accelerator: Accelerator
    setup: Setup
    chips: int
    layout: Layout
    step: StepTime
    basis: str  # measured | relative | datasheet: what the kernels' rates rest on
    candidates: int  # layouts that were compared
    phases: tuple[Phase, ...] = ()  # of a step of DPO or an iteration of GRPO; empty: the step is all

    @property
    def iteration_s(self) -> float:
        """The step with all that precedes it."""
        return math.fsum(phase.time_s for phase in self.phases) if self.phases else self.layout.step_s

    @property
    def serving_fraction(self) -> float:
        """Share of the iteration that the serving engine estimates."""
        return math.fsum(p.time_s for p in self.phases if p.engine == SERVING) / self.iteration_s


def untrainable(a: Accelerator, task: TrainingTask, setups: Sequence[Setup]) -> Rejection | None:
    """Why a chip is not considered for training; None: it is."""
    if not trains(a):
        reason = f"training is not modeled on {a.name}: its software stack is for inference"
        return Rejection(accelerator=a.slug, reason="unsupported", detail=reason, dead_end=reason)
    if not searched_frameworks(a.vendor, task.method, whole_model=True):
        what = "adapters" if task.method != "full" else "training"
        reason = f"no launch files are written for {what} on {a.name}: no framework's speed and memory there are known"
        return Rejection(accelerator=a.slug, reason="unsupported", detail=reason, dead_end=reason)
    if not setups:
        reason = f"{a.name} has no matrix rate for {' or '.join(task.precisions)}"
        return Rejection(accelerator=a.slug, reason="unsupported", detail=reason, dead_end=reason)
    return None


def setups_of(a: Accelerator, task: TrainingTask, whole_model: bool) -> tuple[Setup, ...]:
    """The frameworks that run on the chip, with the precisions that both have."""
    able = [p for p in PRECISIONS if p in task.precisions and has_precision(a, p)]
    pure = able == ["bf16_pure"]  # which no code keeps but transformers'
    names = searched_frameworks(a.vendor, task.method, whole_model and not pure)
    return tuple(
        Setup(framework=name, precision=p)
        for name in names
        for p in able
        if p != "bf16_pure" or FRAMEWORKS[name].code == "hf"
    )


def global_batch(task: TrainingTask) -> int:
    """Sequences of one step, rounded by at most a twelfth so that data parallelism divides them."""
    unit = 1 << int(math.log2(max(task.global_batch / ROUNDING, 1.0)))
    return max(round(task.global_batch / unit) * unit, 1)


def sizes(workload: Workload, a: Accelerator, offers: Sequence[Offer]) -> dict[int, list[Offer]]:
    """Chips of a job to the offers that connect as many in whole instances."""
    c = workload.constraints
    most = min(
        c.max_accelerators or MOST_CHIPS, MOST_CHIPS, c.inventory_chips.get(a.slug, MOST_CHIPS),
        global_batch(task_of(workload)) * 64,
    )  # fmt: skip
    found: dict[int, list[Offer]] = {}
    for offer in offers:
        for hosts in HOSTS:
            chips = hosts * offer.accelerators
            if chips <= min(most, reach(offer)):
                found.setdefault(chips, []).append(offer)
    return dict(sorted(found.items()))


def reach(offer: Offer) -> int:
    """Chips that one job can use: of an instance, of the provider's fabric, or all that are already owned.

    Hosts that the planner owns are taken to be on one network.
    """
    if offer.term == OWNED:
        return offer.held_instances * offer.accelerators
    return max(offer.tensor_parallel_chips, offer.fabric_accelerators)


def serves(offer: Offer, chips: int) -> bool:
    """Whether a job on so many chips can run on whole instances of the offer."""
    return chips % offer.accelerators == 0 and chips <= reach(offer)


def task_of(workload: Workload) -> TrainingTask:
    assert workload.training is not None
    return workload.training


def trained(question: Question, a: Accelerator, setup: Setup, chips: int) -> Trained | str | None:
    """The fastest layout on so many chips; None: none fits, or none divides the batch.

    A text says why the responses cannot be generated on layouts that could train.
    """
    catalog = question.catalog
    task = task_of(question.workload)
    reached = efficiency_on(catalog.scopes, a)
    best: Trained | str | None = None
    for job in jobs(task, catalog.model, a, setup, chips, catalog):
        found = fastest(job, count=COMPOSED if task.tuning else 1)
        rates = rates_of(a, reached, job.recipe, job.code)
        for layout in found.layouts:
            step = step_time(catalog.model, Shape.of(layout.run), rates, layout.run)
            phases = composed(task, catalog, a, layout, rates, step)
            if isinstance(phases, str):
                best = best or phases
                continue
            made = Trained(
                accelerator=a, setup=setup, chips=chips, layout=layout, basis=run_basis(a, reached.basis, chips),
                step=step, candidates=found.candidates, phases=phases,
            )  # fmt: skip
            if not isinstance(best, Trained) or made.iteration_s < best.iteration_s:
                best = made
    return best


def least_gib(question: Question, a: Accelerator, setups: Sequence[Setup], chips: int) -> float:
    """Memory that each of so many chips needs at least; infinite: no layout divides the batch."""
    every = (
        j
        for s in setups
        for j in jobs(task_of(question.workload), question.catalog.model, a, s, chips, question.catalog)
    )
    return min((needed for j in every if (needed := least_memory(j)) is not None), default=math.inf) / 2.0**30


def composed(
    task: TrainingTask, catalog: Catalog, a: Accelerator, layout: Layout, rates: Rates, step: StepTime
) -> tuple[Phase, ...] | str:
    """The phases of an iteration on this layout; none if the step is all of it."""
    if task.tuning is None:
        return ()
    trainer = Trainer(model=catalog.model, chip=a, run=layout.run, peak=layout.memory, rates=rates, step=step)
    return iteration(task.tuning, trainer, servers_of(catalog))


def servers_of(catalog: Catalog) -> Servers:
    """What generates and scores responses: every framework of the catalog, on any chip."""
    reward = catalog.reward_model
    return Servers(
        policy=catalog.model.slug,
        reward=reward.slug if reward else "",
        resources=Resources(
            models={m.slug: m for m in (catalog.model, reward) if m is not None},
            accelerators={},
            quantizations=catalog.quantizations,
            frameworks=catalog.frameworks,
            scopes=catalog.scopes,
        ),
        host_copy_fraction=catalog.host_copy.rate_fraction if catalog.host_copy else 1.0,
    )


def jobs(task: TrainingTask, model: Model, a: Accelerator, setup: Setup, chips: int, catalog: Catalog) -> Iterator[Job]:
    """The search of one setup; none where the framework trains something else than was asked."""
    framework = FRAMEWORKS[setup.framework]
    zeros = framework.zeros if chips > 1 or framework.sizes else (0,)
    recipe = recipe_of(
        setup.precision, task.method, task.adapter_rank or 16, task.optimizer, setup.code, zeros[-1], model
    )
    code = code_of(setup.code, setup.code == "hf", Parallel(dp=chips, zero=zeros[-1]))
    plan = Run(sequence_tokens=task.sequence_tokens, recipe=recipe, code=code, parallel=spread(framework, chips))
    kept = [zero for zero in zeros if (run := with_stage(plan, zero, a, setup.framework)) and run.parallel.zero == zero]
    started_run = with_stage(plan, kept[-1], a, setup.framework) if kept else None
    if started_run is None:
        return
    yield Job(
        model=model,
        accelerator=a,
        efficiency=efficiency_on(catalog.scopes, a),
        chips=chips,
        sequence_tokens=task.sequence_tokens,
        longest_tokens=task.longest_tokens,
        global_batch=global_batch(task),
        recipe=started_run.recipe,
        code=started_run.code,
        zeros=tuple(kept),
        sizes=framework.sizes,
        recomputes=recomputations(task, started_run, a, setup.framework),
        reference=task.tuning is not None and task.tuning.reference == "kept",
        beside_bytes=reward_bytes(servers_of(catalog), a, chips),
    )


def spread(framework: TrainingFramework, chips: int) -> Parallel:
    """Data parallelism with each size that the framework has, so that it keeps what its code does for each."""
    sizes = {name: 2 for name in framework.sizes if name != "pp"}  # pipelines exclude some ZeRO stages
    return Parallel(dp=max(chips, 2 if sizes else 1), sequence_parallel="tp" in sizes, **sizes)


def with_stage(plan: Run, zero: int, a: Accelerator, framework: str) -> Run | None:
    """What the framework starts for the plan at a ZeRO stage; None: something that may not fit or trains otherwise."""
    return started(replace(plan, parallel=replace(plan.parallel, zero=zero)), a.vendor, framework)


def recomputations(task: TrainingTask, run: Run, a: Accelerator, framework: str) -> tuple[Recompute, ...]:
    """The kinds of recomputation that are allowed and that the framework has."""

    def kept(name: Recompute) -> bool:
        found = started(replace(run, recompute=name), a.vendor, framework)
        return found is not None and found.recompute == name

    kinds: tuple[Recompute, ...] = ("none", "selective", "full")
    return tuple(name for name in kinds if name in task.recompute and kept(name))


def offloaded(question: Question, a: Accelerator, chips: int, offer: Offer) -> Trained | None:
    """The fastest full fine-tuning with the optimizer or all states in the memory of the offer's hosts, by DeepSpeed.

    None: nothing fits on the chip or in the host, or nobody knows the host. It is tried where nothing fits without.
    """
    task, host = task_of(question.workload), offer.host
    if host is None or not may_offload(question.workload, a):
        return None
    side = HostSide(chips=min(offer.accelerators, chips), cores=host.cores, memory_bytes=host.memory_bytes)
    reached, model = efficiency_on(question.catalog.scopes, a), question.catalog.model
    found: list[Trained] = []
    for offload, zero in OFFLOADS:
        parallel = Parallel(dp=chips, zero=zero)
        recipe = recipe_of("bf16_master", "full", 0, "adamw", "hf", zero, model)
        plan = Run(
            sequence_tokens=task.sequence_tokens, recipe=recipe, code=code_of("hf", False, parallel),
            parallel=parallel, offload=offload,
        )  # fmt: skip
        run = started(plan, a.vendor, OFFLOADS_WITH)
        if run is None:
            continue
        recipe = run.recipe
        if host_bytes(model, recipe, offload, chips, side.chips) > side.memory_bytes:
            continue
        job = Job(
            model=model, accelerator=a, efficiency=reached, chips=chips, sequence_tokens=task.sequence_tokens,
            global_batch=global_batch(task), recipe=recipe, code=run.code,
            zeros=(zero,), sizes=(), offload=offload, host=side,
            recomputes=tuple(name for name in task.recompute if name != "selective"),
        )  # fmt: skip
        layouts = fastest(job, count=1)
        if not layouts.layouts:
            continue
        layout, rates = layouts.layouts[0], rates_of(a, reached, recipe, job.code, side)
        step = step_time(model, Shape.of(layout.run), rates, layout.run)
        found.append(
            Trained(
                accelerator=a,
                setup=Setup(framework=OFFLOADS_WITH, precision="bf16_master"),
                chips=chips,
                layout=layout,
                step=step,
                basis=run_basis(a, reached.basis, chips),
                candidates=layouts.candidates,
            )  # fmt: skip
        )
    return min(found, key=lambda t: t.layout.step_s, default=None)


def may_offload(workload: Workload, a: Accelerator) -> bool:
    """Whether offload is tried: supervised full fine-tuning by AdamW in 16 bits, whose time on the host is known."""
    task = task_of(workload)
    if task.tuning is not None:
        return False
    if OFFLOADS_WITH not in frameworks_of(a.vendor):
        return False
    masters = bool({"bf16", "bf16_master"} & set(task.precisions)) and has_precision(a, "bf16_master")
    whole = task.method == "full" and task.optimizer == "adamw" and not workload.kind.trains_whole_model
    return masters and whole and offloads(a)


def holds_states(model: Model, chips: int, offer: Offer) -> bool:
    """Whether the hosts of an offer have the memory to offload everything."""
    here = min(offer.accelerators, chips)
    return offer.host is not None and host_bytes(model, BF16_MASTER, "all", chips, here) <= offer.host.memory_bytes


def offloads_alike(model: Model, t: Trained, offer: Offer, other: Offer) -> bool:
    """Whether hosts of another offer can hold what the run offloads, with as many cores for each chip."""
    if t.layout.run.offload == "none":
        return True
    if offer.host is None or other.host is None or not holds_states(model, t.chips, other):
        return False
    here, there = (o.host.cores / min(o.accelerators, t.chips) for o in (offer, other) if o.host)
    return there >= here


OFFLOADS: tuple[tuple[Offload, int], ...] = (("optimizer", 2), ("all", 3))  # with the ZeRO stage that DeepSpeed needs
