"""Builds the track record from the measured rows: questions as held-out predictions see them, and all methods."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from advisor.engine.calibration import Observed
from advisor.engine.estimate import Resources
from advisor.engine.terms import Place, length_class
from advisor.fidelity.rows import Row
from advisor.fidelity.stored import KNOWN, NEW
from advisor.inputs import measured
from catalog import clock
from catalog.models import ScoredRow
from catalog.pricing.derived import current_offers
from tests.laboratory import calibrate, calibration_files
from tests.laboratory.decisions import cases, errors, track_record
from tests.laboratory.decisions.cases import Group, Setting
from tests.laboratory.decisions.track_record import Method, Question
from tests.laboratory.decisions.unseen import FIGURES, Expected, Refits, against
from tests.laboratory.peers import Recorded

Json = dict[str, Any]
KINDS = ("vm", "bare_metal")
RULE, CHEAPEST, B200, NEWEST = "rule", "cheapest predicted", "always B200", "always newest"
STRICTER = {"at least 80 %": (0.8, 0.8), "at least 90 %": (0.9, 0.9)}  # least, sure


def chip_prices() -> dict[str, float]:
    """Median on-demand price per chip-hour of each chip, over current public offers of whole machines, USD."""
    offers = current_offers().filter(term="on_demand", kind__in=KINDS, usd_per_hour__gt=0)
    found: dict[str, list[float]] = {}
    for chip, count, usd in offers.values_list("accelerator__slug", "accelerators", "usd_per_hour"):
        if usd and count:
            found.setdefault(chip, []).append(float(usd) / count)
    return {chip: median(usd) for chip, usd in found.items()}


# --- questions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The scored rows and what follows from them alone."""

    groups: Sequence[Group]
    observed: Mapping[str, Sequence[Observed]]  # by figure
    usd_per_chip_hour: Mapping[str, float]

    @staticmethod
    def of(scored: Sequence[ScoredRow], shapes: Mapping[str, str], prices: Mapping[str, float]) -> "Rows":
        return Rows(
            groups=cases.groups_of(scored, shapes, prices),
            observed={figure: measured.observed_of(scored, figure, shapes) for figure in FIGURES},
            usd_per_chip_hour=prices,
        )


def place_of(group: Group, s: Setting) -> Place:
    """Where a setting counts among measured rows. As in answers, it is not on the machines of any source."""
    layout = measured.layout_of_text(s.layout)
    assert layout is not None
    return Place(
        framework=s.framework,
        version=s.version,
        model=group.shape,
        chip=s.chip,
        format=s.weights,
        layout=layout,
        lengths=(length_class(group.isl), length_class(group.osl)),
        site=measured.OWN,
    )


def question(
    group: Group,
    prices: Mapping[str, float],
    ratio: Mapping[str, float],
    expected: Expected,
    known: Sequence[Observed] = (),
) -> Question | None:
    """A group as predicted without its rows; None if fewer than two chips have predictions.

    ratio: held-out over full prediction, by row. known: rows of the same model at other lengths.
    """
    ids = [(f"{s.key}:tpot", f"{s.key}:ttft") for s in group.settings]
    spread = expected.spread
    kept = [
        s
        for s, pair in zip(group.settings, ids, strict=True)
        if all(key in ratio for key in pair) and all((s.basis, figure) in spread for figure in FIGURES)
    ]
    settings = cases.enough(kept)
    if len({s.chip for s in settings}) < cases.LEAST_CHIPS:
        return None
    group = replace(group, settings=tuple(settings))
    return Question(
        group=group,
        limits=tuple(cases.limits_of(settings)),
        usd_per_chip_hour=prices,
        predicted=(
            np.array([s.predicted_tpot_ms * ratio[f"{s.key}:tpot"] for s in settings]),
            np.array([s.predicted_ttft_ms * ratio[f"{s.key}:ttft"] for s in settings]),
        ),
        errors=errors.expected(
            [place_of(group, s) for s in settings],
            [spread[s.basis, "tpot"] for s in settings],
            [spread[s.basis, "ttft"] for s in settings],
            [expected.correlation[s.basis] for s in settings],
            expected.poolings,
            known,
        ),
    )


def questions(rows: Rows, refits: Refits) -> dict[str, list[Question]]:
    """The questions by what was measured of the model: nothing, or other token lengths."""
    made: dict[str, list[Question]] = {NEW: [], KNOWN: []}
    for shape in sorted({g.shape for g in rows.groups}):
        expected = refits.expected(shape, rows.observed)
        ratio = refits.predicted(refits.of_model(shape))
        for group in (g for g in rows.groups if g.shape == shape):
            alike = [o for o in rows.observed["tpot"] if o.place.model == shape and not answers(o.place, group)]
            nearer = refits.predicted(refits.of_question(group.question))
            for name, own, known in ((NEW, ratio, ()), (KNOWN, nearer, against(alike, nearer))):
                if (q := question(group, rows.usd_per_chip_hour, own, expected, known)) is not None:
                    made[name].append(q)
    return made


def answers(place: Place, group: Group) -> bool:
    """Whether a measured row answers the question of a group."""
    return (place.model, cases.bits(place.format), *place.lengths) == group.question


# --- methods ------------------------------------------------------------------------------------------------------

METHODS: Mapping[str, Method] = {
    RULE: track_record.by_rule(),
    CHEAPEST: track_record.cheapest_predicted(),
    B200: track_record.cheapest_predicted(track_record.b200),
    NEWEST: track_record.cheapest_predicted(track_record.newest),
    **{name: track_record.by_rule(*bars) for name, bars in STRICTER.items()},
}


def limited(outcomes: Sequence[tuple[track_record.Limits, track_record.Outcome]]) -> Json:
    """Summaries over all decisions, and apart by whether TTFT is limited."""
    sets = {
        "all": [o for _, o in outcomes],
        "TPOT": [o for limits, o in outcomes if limits.ttft_ms is None],
        "TPOT and TTFT": [o for limits, o in outcomes if limits.ttft_ms is not None],
    }
    return {name: found for name, own in sets.items() if (found := summarized(own)) is not None}


def summarized(outcomes: Sequence[track_record.Outcome]) -> Json | None:
    found = track_record.summary(outcomes)
    return None if found is None else {key: rounded(value) for key, value in asdict(found).items()}


def rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def decided(asked: Sequence[Question], method: Method) -> list[tuple[track_record.Limits, track_record.Outcome]]:
    return [(limits, method(q, limits)) for q in asked for limits in q.limits]


def load_tests(asked: Sequence[Question]) -> Json:
    """Decisions before and after one load test."""
    learned = [found for q in asked for limits in q.limits if (found := track_record.with_one_test(q, limits))]
    answered = [found for found in learned if found.after.first is not None]
    return {
        "decisions": len(answered),
        "unanswered_after": len(learned) - len(answered),
        "before": summarized([found.before for found in answered]),
        "after": summarized([found.after for found in answered]),
        "promised_mean": rounded(float(np.mean([found.promised for found in answered]))) if answered else None,
    }


def peer_question(q: Question, predicted: Mapping[str, float]) -> tuple[Question, Question] | None:
    """(the question as a tool predicts it, the same settings as this engine does); None if it answered too few."""
    ids = [(f"{s.key}:tpot", f"{s.key}:ttft") for s in q.group.settings]
    has = [all(key in predicted for key in pair) for pair in ids]
    settings = cases.enough([s for s, kept in zip(q.group.settings, has, strict=True) if kept])
    if len({s.chip for s in settings}) < cases.LEAST_CHIPS:
        return None
    places = [q.group.settings.index(s) for s in settings]
    assert q.errors is not None
    ours = replace(
        q,
        group=replace(q.group, settings=tuple(settings)),
        limits=tuple(cases.limits_of(settings)),
        predicted=(q.predicted[0][places], q.predicted[1][places]),
        errors=q.errors.only(places),
    )
    tool = np.array([[predicted[key] for key in ids[n]] for n in places])
    return replace(ours, predicted=(tool[:, 0], tool[:, 1]), errors=None), ours


def peers(asked: Sequence[Question], recorded: Recorded) -> list[Json]:
    """Other tools beside this engine on the settings that they answered."""
    made = []
    for tool in recorded.tools:
        predicted = {a.key: a.predicted for a in recorded.answers if a.tool == tool.slug and a.predicted}
        both = [pair for q in asked if (pair := peer_question(q, predicted)) is not None]
        if not both:
            continue
        theirs, ours = [pair[0] for pair in both], [pair[1] for pair in both]
        sets = ((tool.name, theirs, CHEAPEST), ("Assay", ours, CHEAPEST), ("Assay", ours, RULE))
        lines = [
            {"who": who, "method": name, **(summarized([o for _, o in decided(own, METHODS[name])]) or {})}
            for who, own, name in sets
        ]
        made.append({"tool": tool.name, "lines": lines})
    return made


def reliability(asked: Sequence[Question]) -> list[Json]:
    """How often settings met limits, by the probability that was stated: all settings of all decisions."""
    stated: list[float] = []
    seen: list[bool] = []
    for q in asked:
        assert q.errors is not None
        for limits in q.limits:
            stated += q.drawn(q.errors, limits).holds.mean(axis=1).tolist()
            seen += limits.met(*q.measured).tolist()
    said, held = np.array(stated), np.array(seen)
    edges = (0.0, 0.2, 0.5, 0.8, 0.95, 1.0001)
    lines = []
    for low, high in zip(edges, edges[1:], strict=False):
        own = (said >= low) & (said < high)
        if own.any():
            lines.append(
                {"from": low, "settings": int(own.sum()), "stated": rounded(float(said[own].mean())),
                 "met": rounded(float(held[own].mean()))}
            )  # fmt: skip
    return lines


def record(
    rows: Sequence[Row],
    scored: Sequence[ScoredRow],
    resources: Resources,
    disputed: Mapping[str, str],
    recorded: Recorded,
) -> Json:
    """The whole track record, as it is stored. rows: as measured; scored: the same with predictions."""
    shapes = measured.shapes()
    setup = calibration_files.setup(resources.accelerators)
    evidence = calibrate.evidence(rows, resources, disputed, setup.weights)
    refits = Refits(evidence, scored, resources, setup, shapes)
    usable = Rows.of(scored, shapes, chip_prices())
    return summarize(questions(usable, refits), usable.usd_per_chip_hour, recorded, clock.today().isoformat())


def summarize(
    asked: Mapping[str, Sequence[Question]], prices: Mapping[str, float], recorded: Recorded, as_of: str
) -> Json:
    """All methods on the same questions, by what was measured of the model."""
    used = {s.chip for q in asked[NEW] for s in q.group.settings}
    return {
        "as_of": as_of,
        "usd_per_chip_hour": {chip: rounded(prices[chip]) for chip in sorted(used)},
        "groups": [
            {
                "model": q.group.model,
                "bits": q.group.bits,
                "isl": q.group.isl,
                "osl": q.group.osl,
                "settings": {chip: sum(s.chip == chip for s in q.group.settings) for chip in q.group.chips},
                "decisions": len(q.limits),
            }
            for q in asked[NEW]
        ],
        "methods": {
            name: {method: limited(decided(own, how)) for method, how in METHODS.items()} for name, own in asked.items()
        },
        "finer_steps": {
            name: {
                method: limited(decided([track_record.finer(q) for q in own], METHODS[method]))
                for method in (RULE, CHEAPEST)
            }
            for name, own in asked.items()
        },
        "one_load_test": {name: load_tests(own) for name, own in asked.items()},
        "reliability": {name: reliability(own) for name, own in asked.items()},
        "peers": peers(asked[NEW], recorded),
    }
