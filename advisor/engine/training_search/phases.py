"""DPO and GRPO as a composition of both engines: phases that follow one another on the same accelerators.

The policy update and the forward pass of the reference are timed as training, the responses and the scores of a reward
model as serving. Trainer and generator share the accelerators in turn. The generator has its own 16-bit copy of the
weights, sharded for serving and sent anew in each iteration; its weights and KV cache are given up before the update.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from advisor.engine.cost import Draw
from advisor.engine.estimate import Resources, means, methods_of_dtype, prepare, prepared
from advisor.engine.network import Model, parameters
from advisor.engine.step import (
    lanes,
    runs_on,
    step_fractions,
    supports_model,
    supports_weights,
)
from advisor.engine.terms import Accelerator, Case, Framework, Pool, Rollout, TuningObjective
from advisor.engine.training import (
    PeakMemory,
    Rates,
    Run,
    StepTime,
    forward_s,
    reference_bytes,
    ring_s,
)

UPDATE, REFERENCE, GENERATION, LONGEST = "policy update", "reference forward", "generation", "longest responses"
RESHARDING, SCORING, MOVING = "weights to the generator", "reward model", "state to and from host"
TRAINING, SERVING = "training", "serving"
ROOM_FRACTION = 0.6  # of the memory that is free for serving, for 16-bit weights; the rest is KV cache: assumed
WEIGHT_BYTES = 2.0  # of the generator's copy and of a reward model
UNRANKED = 1_000  # preference of a framework without launch files
GIB = 2.0**30
Drawn = Callable[[Draw], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One part of an iteration."""

    name: str
    engine: str  # training | serving
    time_s: float
    said: str
    power_fraction: Drawn | None = None  # of (limit - idle); None: as in the update, or waiting for copies


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """The training side of an iteration: a layout and its step."""

    model: Model
    chip: Accelerator
    run: Run
    peak: PeakMemory
    rates: Rates
    step: StepTime


@dataclass(frozen=True, kw_only=True, slots=True)
class Servers:
    """What the generator is chosen from. models: the policy, and the reward model if there is one."""

    policy: str
    reward: str  # empty: rules score the responses
    resources: Resources
    host_copy_fraction: float  # of the link to the host that large copies reach

    @property
    def reward_model(self) -> Model | None:
        return self.resources.models[self.reward] if self.reward else None


def beside_bytes(tuning: TuningObjective, model: Model, run: Run, servers: Servers | None, chip: Accelerator) -> float:
    """What a rank holds beside the trainer during the update: the reference, and a shard of the reward model."""
    kept = reference_bytes(model, run) if tuning.reference == "kept" else 0.0
    return kept + reward_bytes(servers, chip, run.parallel.chips)


def reward_bytes(servers: Servers | None, chip: Accelerator, chips: int) -> float:
    reward = servers.reward_model if servers else None
    if reward is None:
        return 0.0
    weights = WEIGHT_BYTES * parameters(reward)
    return weights / smallest_tp(weights, chip, chips, chip.memory_bytes)


def iteration(tuning: TuningObjective, t: Trainer, servers: Servers) -> tuple[Phase, ...] | str:
    """The phases of one step of DPO or iteration of GRPO, in order; or why the responses cannot be generated."""
    update = Phase(
        name=UPDATE,
        engine=TRAINING,
        time_s=float(t.step.step_s),
        said="forward and backward pass over every sequence, and the optimizer",
    )
    trains = (*([reference_pass(t)] if tuning.reference == "kept" else []), update)
    if tuning.rollout is None:
        return trains
    generates = generation(tuning, tuning.rollout, t, servers)
    return generates if isinstance(generates, str) else (*generates, *trains)


def reference_pass(t: Trainer) -> Phase:
    return Phase(
        name=REFERENCE,
        engine=TRAINING,
        time_s=forward_s(t.model, t.run, t.rates, t.step),
        said=(
            "log-probabilities under the frozen base, without adapters"
            if t.run.recipe.method != "full"
            else "log-probabilities under a frozen copy of the model"
        ),
    )


# --- generation -------------------------------------------------------------------------------------------------


def generation(tuning: TuningObjective, rollout: Rollout, t: Trainer, servers: Servers) -> tuple[Phase, ...] | str:
    """The quicker of two ways: beside the training state, or with that state in host memory meanwhile."""
    state = state_bytes(t) + (reference_bytes(t.model, t.run) if tuning.reference == "kept" else 0.0)
    link = t.chip.pcie_bytes_per_s * servers.host_copy_fraction
    ways = [generated(rollout, t, servers, state, 0.0)]
    if link > 0:
        ways.append(generated(rollout, t, servers, 0.0, 2.0 * state / link))
    made = [way for way in ways if not isinstance(way, str)]
    if not made:
        return str(ways[-1])
    return min(made, key=lambda way: math.fsum(p.time_s for p in way))


def state_bytes(t: Trainer) -> float:
    """Bytes that a rank's trainer keeps between two updates: weights, masters, optimizer states, gradient buffer."""
    p = t.peak
    buffer = p.gradients_bytes if t.run.code.gradient_buffer else 0.0
    return float(p.parameters_bytes + p.states_bytes + p.master_bytes + buffer)


def generated(
    rollout: Rollout, t: Trainer, servers: Servers, resident_bytes: float, moved_s: float
) -> tuple[Phase, ...] | str:
    """Generation and scores beside `resident_bytes` of training state on each accelerator."""
    chips = t.run.parallel.chips
    responses = t.run.micro_batch * t.run.micro_batches * t.run.parallel.dp
    room = t.chip.memory_bytes - resident_bytes - reward_bytes(servers, t.chip, chips)
    weights = WEIGHT_BYTES * parameters(t.model)
    tp = smallest_tp(weights, t.chip, chips, room)
    framework = framework_for(servers.resources, t.chip, t.model)
    if framework is None:
        return f"no serving framework of the catalog runs {t.model.slug} in BF16 on {t.chip.name}"
    replicas = max(chips // tp, 1)
    each = max(math.ceil(responses / replicas), 1)
    case = Case(
        model_id=servers.policy, accelerator_slug=t.chip.slug, chips=tp, weights_dtype="bf16",
        framework=framework.slug, framework_version=framework.version, isl=rollout.prompt_tokens,
        osl=rollout.response_tokens, phase="serving", pool=Pool(tp=tp), concurrency=float(each),
    )  # fmt: skip
    # the cache must hold the longest response; a request of the mean length is timed
    longest = replace(case, osl=rollout.longest_response_tokens, concurrency=1.0)
    resources = with_memory(servers.resources, t.chip, room)
    full, alone = speeds((case, longest), resources)
    if not (full.output_tokens_per_s > 0 and alone.tpot_mean_s > 0):
        where = "with the training state in host memory" if not resident_bytes else "beside the training state"
        return f"the weights and one response do not fit on {tp} x {t.chip.name} {where}"
    drawn = partial(power_fraction, case, resources)
    phases = [
        Phase(name=MOVING, engine=TRAINING, time_s=moved_s, said=moved_text(t, state_bytes(t)))
        if moved_s
        else None,
        resharding(t, tp, weights),
        Phase(
            name=GENERATION, engine=SERVING, time_s=each * rollout.response_tokens / full.output_tokens_per_s,
            said=generation_text(rollout, responses, each, replicas, tp, framework, resident_bytes),
            power_fraction=drawn,
        ),
        Phase(
            name=LONGEST, engine=SERVING,
            time_s=(rollout.longest_response_tokens - rollout.response_tokens) * alone.tpot_mean_s,
            said=(
                f"the longest response has {rollout.longest_response_tokens:,.0f} tokens and ends alone, while the "
                "other batch slots are empty"
            ),
            power_fraction=partial(power_fraction, longest, resources),
        ),
    ]  # fmt: skip
    scores = scoring(rollout, t, servers, responses, t.chip.memory_bytes - resident_bytes)
    if isinstance(scores, str):
        return scores
    return tuple(p for p in (*phases, scores) if p is not None)


def generation_text(
    rollout: Rollout, responses: int, each: int, replicas: int, tp: int, framework: Framework, resident_bytes: float
) -> str:
    where = (
        f"beside {resident_bytes / GIB:,.3g} GiB of training state on each accelerator"
        if resident_bytes
        else "with the training state in host memory"
    )
    shared = f"{each:,} on each of {replicas:,} replicas" if replicas > 1 else "all on one replica"
    return (
        f"{responses:,} responses of {rollout.response_tokens:,.0f} tokens on average to prompts of "
        f"{rollout.prompt_tokens:,.0f}, {shared} with tp {tp} ({framework.slug}, "
        f"bf16), {where}"
    )


def moved_text(t: Trainer, size_bytes: float) -> str:
    return (
        f"{size_bytes / GIB:,.3g} GiB per accelerator make room for the KV cache and come back before the update; the "
        "host needs as much free memory"
    )


def resharding(t: Trainer, tp: int, weights_bytes: float) -> Phase | None:
    """Each generator rank gathers its shard; None: every rank already has it."""
    p = t.run.parallel
    if p.zero < 3 and p.pp == 1 and p.tp <= tp:
        return None
    group = max(p.chips // tp, 1) if p.zero >= 3 else p.pp * max(p.tp // tp, 1)
    seconds = float(ring_s(t.rates, group, weights_bytes / tp, 1.0, min(tp, t.rates.near_chips)))
    if seconds <= 0.0:
        return None
    return Phase(
        name=RESHARDING,
        engine=TRAINING,
        time_s=seconds,
        said=f"{weights_bytes / tp / GIB:,.3g} GiB of 16-bit weights gathered by each accelerator for tp {tp}",
    )


def scoring(rollout: Rollout, t: Trainer, servers: Servers, responses: int, room_bytes: float) -> Phase | str | None:
    """Prefill of every prompt with its response through the reward model; None: rules score the responses."""
    reward = servers.reward_model
    if reward is None:
        return None
    chips = t.run.parallel.chips
    framework = framework_for(servers.resources, t.chip, reward)
    if framework is None:
        return f"no serving framework of the catalog runs {reward.slug} in BF16 on {t.chip.name}"
    tp = smallest_tp(WEIGHT_BYTES * parameters(reward), t.chip, chips, t.chip.memory_bytes)
    each = max(math.ceil(responses / max(chips // tp, 1)), 1)
    case = Case(
        model_id=servers.reward, accelerator_slug=t.chip.slug, chips=tp, weights_dtype="bf16",
        framework=framework.slug, framework_version=framework.version,
        isl=rollout.prompt_tokens + rollout.response_tokens, osl=1.0, phase="serving", pool=Pool(tp=tp),
        concurrency=float(each),
    )  # fmt: skip
    resources = with_memory(servers.resources, t.chip, room_bytes)
    (full,) = speeds((case,), resources)
    if not full.output_tokens_per_s > 0:
        return f"the reward model does not fit on {tp} x {t.chip.name} beside the training state"
    return Phase(
        name=SCORING,
        engine=SERVING,
        time_s=each / full.output_tokens_per_s,
        said=f"{responses:,} prompts with their responses read once by {reward.slug}, tp {tp} ({framework.slug}, bf16)",
        power_fraction=partial(power_fraction, case, resources),
    )


def smallest_tp(weights_bytes: float, chip: Accelerator, chips: int, room_bytes: float) -> int:
    """The fewest accelerators that hold the weights with room for a KV cache: a power of two in a scale-up domain."""
    most = min(chips, chip.links[0].chips if chip.links else 1)
    tp = 1
    while tp * ROOM_FRACTION * room_bytes < weights_bytes and 2 * tp <= most:
        tp *= 2
    return tp


def framework_for(known: Resources, chip: Accelerator, model: Model) -> Framework | None:
    """The preferred framework that serves the model in BF16 on the chip, as `estimate` chooses it."""
    methods = methods_of_dtype("bf16", known.quantizations, model)
    newest = {f.slug: f for f in known.frameworks if runs_on(f, chip)}
    able = [
        f
        for f in newest.values()
        if supports_model(f, model) and any(supports_weights(f, chip, q, model) for q in methods)
    ]
    return min(able, key=lambda f: f.launch.preference if f.launch else UNRANKED, default=None)


def with_memory(known: Resources, chip: Accelerator, room_bytes: float) -> Resources:
    """The catalog with this much memory on the chip."""
    return replace(known, accelerators={chip.slug: replace(chip, memory_bytes=max(room_bytes, 0.0))})


def speeds(cases: Sequence[Case], resources: Resources) -> list["Speed"]:
    """Closed-form speed of each case; zeros where it does not fit."""
    ready = prepared(cases, resources)
    if len(ready.cases) < len(cases):
        return [Speed()] * len(cases)
    found = means(ready, resources, resources.scopes)
    return [
        Speed(
            output_tokens_per_s=m.output_tokens_per_s if math.isfinite(m.output_tokens_per_s) else 0.0,
            tpot_mean_s=m.tpot_mean_s if math.isfinite(m.tpot_mean_s) else 0.0,
        )
        for m in found
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Of one replica."""

    output_tokens_per_s: float = 0.0
    tpot_mean_s: float = 0.0


def power_fraction(case: Case, resources: Resources, draw: Draw) -> float:
    """Mean power of a serving phase as a fraction of (limit - idle): of decode steps, or of prefill where nothing is
    generated. The prompts of a generation take a small part of its time.
    """
    own = prepare(case, resources)
    assert not isinstance(own, str)
    model, built = resources.models[case.model_id], lanes(resources.models[case.model_id], own)
    capacity = float(built.times.kv_capacity_tokens[0]) // (case.isl + case.osl)
    at_once = max(min(case.concurrency or 1.0, own[0].max_running_requests, capacity), 1.0)
    prefill, decode = step_fractions(draw, model, built, 0, case.isl, at_once, case.isl + case.osl / 2)
    return prefill if case.osl <= 1 else decode
