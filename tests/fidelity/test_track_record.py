"""Decisions from held-out predictions: no leak of what is decided, errors that chips share, and the checks."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.engine.calibration import Observed, Pooling
from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Place, RatioDistribution
from advisor.fidelity import stored
from advisor.fidelity.rows import case_of
from catalog.models import ScoredRow
from tests.laboratory import calibrate
from tests.laboratory.decisions import cases, document, errors, record, track_record
from tests.laboratory.decisions.cases import Group, Limits, Setting
from tests.laboratory.decisions.track_record import Outcome, Question
from tests.laboratory.decisions.unseen import Expected, Refits
from tests.laboratory.least_squares import Parameter
from tests.measured_samples import row

MODELS = ("meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-30B-A3B")
CHIPS = ("h100-sxm", "b200", "h200-sxm")
LOADS = (4, 16, 64, 256)
PRICES = {"h100-sxm": 3.0, "b200": 6.0, "h200-sxm": 4.0}
CATALOG = SimpleNamespace(models=set(MODELS), accelerators=set(CHIPS))
LOOSE = {name: RatioDistribution.of({0.05: 0.8, 0.5: 1.0, 0.95: 1.25}) for name in ("tpot", "ttft")}
POOLING = Pooling(variances={MODEL: 0.006, STACK: 0.006, LAYOUT: 0.002, SITE: 0.001, LENGTHS: 0.001}, noise=0.001)


# --- measured rows whose predictions depend on two parameters -------------------------------------------------------


def measured_rows(seed: int = 5):
    """(rows of three models on three chips, TPOT and TTFT, at two lengths)."""
    draw, rows = np.random.default_rng(seed), []
    for model in MODELS:
        for chip in CHIPS:
            for isl in ("1024", "8192"):
                for users in LOADS:
                    for figure, base, off in (("tpot", 5.0 + 0.1 * users, 0.1), ("ttft", 50.0 + 2.0 * users, 0.5)):
                        rows.append(
                            row(
                                id=f"{model}-{chip}-{isl}-{users}:{figure}",
                                metric=f"{figure}_ms_mean",
                                value=str(base * float(np.exp(draw.normal(0, off)))),
                                model=model,
                                model_id=model,
                                weights_dtype="bf16",
                                accelerator_slug=chip,
                                isl=isl,
                                concurrency_or_batch=str(users),
                            )
                        )
    return rows


@dataclass
class Linear:
    """Evidence whose closed form is a product of powers of the two parameters."""

    rows: tuple[calibrate.Used, ...]
    weights: np.ndarray
    slopes: np.ndarray

    def errors(self, scopes, resources):
        return self.slopes @ np.log([scopes["default"]["a"], scopes["default"]["b"]])


def slopes(rows) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.2, 1.0, (len(rows), 2))


def predictions(rows, shipped) -> dict[str, float]:
    """By a calibration with these logarithms of both parameters."""
    found = {}
    for r, slope in zip(rows, slopes(rows), strict=True):
        users = float(r.concurrency_or_batch)
        base = 5.0 + 0.1 * users if "tpot" in r.metric else 50.0 + 2.0 * users
        found[r.id] = base * float(np.exp(slope @ np.array(shipped)))
    return found


def scored(rows, shipped=(0.0, 0.0)) -> list[ScoredRow]:
    predicted = predictions(rows, shipped)
    return [
        ScoredRow(
            key=r.id, source_key="serving_nightly", metric=r.metric, measured=r.value, predicted=predicted[r.id],
            bias_fraction=predicted[r.id] / r.value - 1.0, accelerator=r.accelerator_slug, chips=1, model=r.model_id,
            framework="vllm", framework_version="0.19.0", weights_dtype="bf16", mode="agg", layout="tp1",
            isl=float(r.isl), osl=1024.0, concurrency=float(r.concurrency_or_batch), client="burst", client_known=True,
            phase="serving", basis="measured" if r.accelerator_slug == "h200-sxm" else "relative",
            measured_on="2026-04-27", circumstance="",
        )
        for r in rows
    ]  # fmt: skip


def refits(rows, shipped=(0.0, 0.0)) -> Refits:
    used = tuple(
        calibrate.Used(row=r, case=case, kind=calibrate.kind_of(r, case), group=calibrate.group_of(r))
        for r in rows
        if (case := case_of(r, CATALOG))
    )
    evidence = Linear(rows=used, weights=np.ones(len(used)), slopes=slopes(rows))
    setup = SimpleNamespace(
        scopes={"default": dict(zip("ab", np.exp(shipped).tolist(), strict=True))},
        parameters=tuple(Parameter(scope="default", name=name, value=1.1, low=0.2, high=5.0) for name in "ab"),
        measured_scopes={"h200-sxm": ()},
    )
    chips = {chip: SimpleNamespace(family="hopper" if chip != "b200" else "blackwell") for chip in CHIPS}
    return Refits(evidence, scored(rows, shipped), SimpleNamespace(accelerators=chips), setup, {})  # type: ignore[arg-type]


def asked(rows, shipped=(0.0, 0.0)) -> dict[str, list[Question]]:
    return record.questions(record.Rows.of(scored(rows, shipped), {}, PRICES), refits(rows, shipped))


def test_what_is_decided_does_not_change_its_own_predictions() -> None:
    """Every measured value of the decided rows times 1.7: their predictions and errors stay, to the last digit."""
    rows = measured_rows()
    for name, held in {
        record.NEW: lambda r: r.model_id == MODELS[1],
        record.KNOWN: lambda r: r.model_id == MODELS[1] and r.isl == "1024",
    }.items():
        changed = [replace(r, value=r.value * 1.7) if held(r) else r for r in rows]
        before, after = (
            next(q for q in asked(each)[name] if (q.group.model, q.group.isl) == (MODELS[1], 1024.0))
            for each in (rows, changed)
        )
        assert after.measured[0] == pytest.approx(1.7 * before.measured[0])
        for a, b in zip(
            (*before.predicted, before.errors.factor), (*after.predicted, after.errors.factor), strict=True
        ):
            assert a.tolist() == b.tolist()
        assert (before.errors.tpot, before.errors.ttft) == (after.errors.tpot, after.errors.ttft)
        assert before.errors.covariance.tolist() == after.errors.covariance.tolist()


def test_the_calibration_that_was_fitted_to_all_rows_does_not_matter() -> None:
    """From whichever shipped values, the held-out predictions are those of a fit to the other rows."""
    rows = measured_rows()
    for name in (record.NEW, record.KNOWN):
        one, other = asked(rows)[name], asked(rows, (0.15, -0.1))[name]
        for a, b in zip(one, other, strict=True):
            for x, y in zip(track_record.corrected(a), track_record.corrected(b), strict=True):
                assert x == pytest.approx(y, rel=2e-3)
            assert a.errors.tpot[0].ends == pytest.approx(b.errors.tpot[0].ends, rel=1e-2)


def test_other_rows_do_change_them() -> None:
    """Rows of other models move the fit; rows at other lengths correct a model that was measured."""
    rows = measured_rows()
    slower = [replace(r, value=r.value * 1.3) if r.model_id != MODELS[1] else r for r in rows]
    longer = [replace(r, value=r.value * 1.3) if r.model_id == MODELS[1] and r.isl == "8192" else r for r in rows]

    def of(rows, name):
        return next(q for q in asked(rows)[name] if (q.group.model, q.group.isl) == (MODELS[1], 1024.0))

    assert (of(slower, record.NEW).predicted[0] > 1.1 * of(rows, record.NEW).predicted[0]).all()
    assert (of(longer, record.KNOWN).errors.factor > 1.05 * of(rows, record.KNOWN).errors.factor).all()
    assert of(longer, record.NEW).errors.factor.tolist() == of(rows, record.NEW).errors.factor.tolist()


def test_questions_need_enough_settings_on_two_chips_with_a_price() -> None:
    every = scored(measured_rows())
    assert len(cases.groups_of(every, {}, PRICES)) == len(MODELS) * 2
    assert not cases.groups_of(every, {}, ["b200"])
    few = [s for s in every if s.accelerator == "b200" or s.concurrency in (4, 16)]
    assert not cases.groups_of(few, {}, PRICES)
    for change in ({"circumstance": "disputed"}, {"mode": "disagg"}, {"layout": ""}, {"client_known": False}):
        wrong = scored(measured_rows())
        for s in wrong:
            for name, value in change.items():
                setattr(s, name, value)
        assert not cases.groups_of(wrong, {}, PRICES), change


def test_a_repeated_run_counts_by_its_newest_date() -> None:
    old, new = scored(measured_rows()), scored(measured_rows(seed=6))
    for s in new:
        s.key, s.measured_on = f"again {s.key}", "2026-05-01"
    (first, *_) = cases.groups_of([*new, *old], {}, PRICES)
    assert len(first.settings) == len(CHIPS) * len(LOADS)
    assert all(s.key.startswith("again") for s in first.settings)


def test_limits_that_the_same_settings_meet_are_one_decision() -> None:
    (group, *_) = cases.groups_of(scored(measured_rows()), {}, PRICES)
    slow_first = [replace(s, ttft_ms=1e4 / s.ttft_ms) for s in group.settings]  # where TPOT is short
    for settings, with_ttft in ((group.settings, 0), (slow_first, 2)):
        limits = cases.limits_of(settings)
        tpot, ttft = (np.array([getattr(s, name) for s in settings]) for name in ("tpot_ms", "ttft_ms"))
        met = [tuple(each.met(tpot, ttft)) for each in limits]
        assert len(set(met)) == len(met) and all(map(any, met))
        assert sum(each.ttft_ms is not None for each in limits) == with_ttft
        assert 0 < sum(each.ttft_ms is None for each in limits) <= cases.LIMITS


# --- errors that deployments share ----------------------------------------------------------------------------------


def place(chip: str, model: str = "m", layout: int = 1) -> Place:
    return Place(
        framework="vllm", version="1", model=model, chip=chip, format="fp8", layout=(layout, 1, 1, 1), lengths=(20, 20),
        site="own",
    )  # fmt: skip


def errors_of(places: list[Place], pooling: Pooling = POOLING, known: tuple[Observed, ...] = ()) -> errors.Errors:
    n = len(places)
    return errors.expected(places, [LOOSE["tpot"]] * n, [LOOSE["ttft"]] * n, [0.3] * n, (pooling, pooling), known)


def test_draws_have_the_distribution_of_answers_and_the_shared_part() -> None:
    tpot, ttft = errors_of([place("a"), place("b"), place("a")]).draws(20_000)
    for each in (*tpot, *ttft):
        for share, ratio in ((0.05, 0.8), (0.5, 1.0), (0.95, 1.25)):
            assert np.quantile(each, share) == pytest.approx(ratio, rel=0.01)
    seen = np.corrcoef(np.log([*tpot, *ttft]))
    whole = sum(POOLING.variances.values()) + POOLING.noise
    assert seen[0, 1] == pytest.approx(POOLING.variances[MODEL] / whole, abs=0.03)
    assert seen[0, 2] == pytest.approx(1 - POOLING.noise / whole, abs=0.03)
    assert seen[0, 3] == pytest.approx(0.3, abs=0.03)  # TTFT with TPOT


def test_one_load_test_says_something_about_every_chip_and_nothing_about_other_models() -> None:
    before = errors_of([place("a"), place("b"), place("a", model="n")])
    after = before.given(0, 1.25, None)
    whole = sum(POOLING.variances.values()) + POOLING.noise
    share = POOLING.variances[MODEL] / whole
    z = errors.score(LOOSE["tpot"], 1.25)
    assert z == pytest.approx(1.645, abs=0.01)
    assert after.mean[:3] == pytest.approx([z, share * z, 0.0], abs=1e-6)
    assert np.diag(after.covariance)[:3] == pytest.approx([0.0, 1 - share**2, 1.0], abs=1e-6)
    tpot, _ = after.draws(4000)
    assert tpot[0] == pytest.approx(np.full(4000, 1.25), rel=1e-3)
    assert np.median(tpot[1]) > 1.02 and np.median(tpot[2]) == pytest.approx(1.0, abs=0.01)


def test_rows_at_other_lengths_correct_and_narrow() -> None:
    rows = tuple(
        Observed(key=str(n), place=replace(place("a"), lengths=(26, 20), site="x"), log_error=0.2, group="g")
        for n in range(30)
    )
    known = errors_of([place("a"), place("z", model="n")], known=rows)
    assert 1.1 < known.factor[0] < math.exp(0.2) and known.factor[1] == 1.0
    assert known.tpot[0].ends[1] < LOOSE["tpot"].ends[1] and known.tpot[1] == LOOSE["tpot"]


# --- methods --------------------------------------------------------------------------------------------------------


def setting(chip: str, users: float, tpot_ms: float, ttft_ms: float = 100.0) -> Setting:
    return Setting(
        key=f"{chip}-{users:g}", chip=chip, chips=1, framework="vllm", version="1", weights="fp8", layout="tp1",
        concurrency=users, basis="relative", tpot_ms=tpot_ms, ttft_ms=ttft_ms, predicted_tpot_ms=tpot_ms,
        predicted_ttft_ms=ttft_ms,
    )  # fmt: skip


def question(predicted: list[float], measured: list[float], chips: str = "aaabbb") -> Question:
    loads = [4.0, 16.0, 64.0] * 2
    settings = tuple(setting(c, n, t) for c, n, t in zip(chips, loads, measured, strict=True))
    return Question(
        group=Group(model="m", shape="m", bits=8, isl=1000.0, osl=100.0, settings=settings),
        limits=(Limits(tpot_ms=20.0),),
        usd_per_chip_hour={"a": 1.0, "b": 1.5},
        predicted=(np.array(predicted), np.full(len(predicted), 100.0)),
        errors=errors_of([place(c) for c in chips]),
    )


def test_the_cheapest_prediction_is_tested_until_one_holds() -> None:
    """Predicted: 64 users on chip a within 20 ms, then 64 on b. Measured: both are too slow, 16 on a is not."""
    q = question([8, 12, 19, 8, 12, 19.5], [9, 14, 22, 9, 14, 23])
    found = track_record.cheapest_predicted()(q, q.limits[0])
    assert (found.first, found.chip, found.met, found.tests) == (2, "a", False, 3)
    assert found.extra == pytest.approx(0.0)  # 16 users on a is the cheapest that really holds
    only = track_record.cheapest_predicted(lambda group: ("b",))(q, q.limits[0])
    assert only.chip == "b" and only.extra == pytest.approx(0.5, abs=0.01)
    assert track_record.cheapest_predicted()(q, Limits(tpot_ms=7.0)).first is None


def test_the_rule_steps_back_where_a_limit_is_near() -> None:
    q = question([8, 12, 19.9, 8, 12, 30], [9, 14, 22, 9, 14, 23])
    found = track_record.by_rule(least=0.8)(q, q.limits[0])
    assert (found.first, found.met, found.tests) == (1, True, 1)
    assert found.probability is not None and found.probability > 0.95


def test_a_load_test_corrects_the_choice() -> None:
    """All predictions are 25 % too slow. One measured point shows it, and the cheaper setting goes first."""
    q = question([10, 15, 23, 10, 15, 23], [8, 12, 18.4, 8, 12, 18.4])
    learned = track_record.with_one_test(q, q.limits[0])
    assert learned is not None
    assert (learned.before.first, learned.after.first) == (1, 2)
    assert learned.before.extra > 0.5 and learned.after.extra == pytest.approx(0.0)
    assert learned.promised > 0.02


def test_finer_steps_lie_between_the_measured_ones() -> None:
    q = question([8, 12, 19, 8, 12, 19], [9, 14, 22, 9, 14, 22])
    fine = track_record.finer(q)
    users = [s.concurrency for s in fine.group.settings if s.chip == "a"]
    assert len(users) == 2 * 2 * track_record.STEPS + 1 and users == sorted(users)
    assert fine.at(q.predicted[0])[0] == pytest.approx(8) and fine.at(q.predicted[0])[16] == pytest.approx(19)
    middle = fine.group.settings[track_record.STEPS]
    assert middle.concurrency == pytest.approx(8.0) and middle.tpot_ms == pytest.approx(math.sqrt(9 * 14))


def test_other_tools_are_compared_on_the_settings_that_they_answered() -> None:
    q = question([8, 12, 19, 8, 12, 19], [9, 14, 22, 9, 14, 22])
    answers = {f"{s.key}:{figure}": 7.0 for s in q.group.settings for figure in ("tpot", "ttft")}
    theirs, ours = record.peer_question(q, answers) or (None, None)
    assert theirs is not None and theirs.errors is None and theirs.predicted[0].tolist() == [7.0] * 6
    assert ours.predicted[0].tolist() == q.predicted[0].tolist()
    assert record.peer_question(q, {k: v for k, v in answers.items() if "b-4:ttft" != k}) is None


def test_the_interval_draws_whole_groups() -> None:
    met = [True] * 20 + [False] * 20
    together = track_record.summary([Outcome(group=str(m), first=0, met=m) for m in met])
    apart = track_record.summary([Outcome(group=str(n), first=0, met=m) for n, m in enumerate(met)])
    assert together is not None and apart is not None
    assert (together.met_low, together.met_high) == (0.0, 1.0)
    assert 0.3 < apart.met_low < 0.5 < apart.met_high < 0.7
    assert track_record.summary([Outcome(group="a")]) is None


def test_a_right_error_model_keeps_its_promises() -> None:
    """Synthetic questions whose truth is drawn from the stated errors: as many are met as stated."""
    draw, stated, met = np.random.default_rng(11), [], []
    method = track_record.by_rule()
    for n in range(250):
        scale = float(np.exp(draw.normal(0, 0.3)))
        q = question([scale * each for each in (8, 12, 18, 7, 11, 17)], [1.0] * 6)
        assert q.errors is not None
        tpot, _ = q.errors.draws(2, seed=1000 + n)
        settings = tuple(
            replace(s, tpot_ms=float(p * t))
            for s, p, t in zip(q.group.settings, q.predicted[0], tpot[:, 0], strict=True)
        )
        limits = Limits(tpot_ms=14.0)
        if min(s.tpot_ms for s in settings) > limits.tpot_ms:
            continue
        found = method(replace(q, group=replace(q.group, settings=settings)), limits)
        if found.probability is not None:
            stated.append(found.probability)
            met.append(found.met)
    assert len(met) > 150
    assert np.mean(met) == pytest.approx(np.mean(stated), abs=3 * np.sqrt(0.2 * 0.8 / len(met)))


# --- what is stored -------------------------------------------------------------------------------------------------


def test_the_page_is_that_of_the_stored_record() -> None:
    path = stored.TRACK_RECORD.parents[3] / "docs" / "reference" / document.NAME
    assert path.read_text(encoding="utf-8") == document.markdown(stored.track_record())


def test_the_stored_record_adds_up() -> None:
    said = stored.track_record()
    decisions = sum(g["decisions"] for g in said["groups"])
    for methods in said["methods"].values():
        assert set(methods) == set(stored.METHODS) == set(record.METHODS)
        for sets in methods.values():
            assert sets["all"]["decisions"] == decisions
            assert sets["TPOT"]["decisions"] + sets["TPOT and TTFT"]["decisions"] == decisions
            assert all(0 <= s["met_low"] <= s["met"] <= s["met_high"] <= 1 and s["tests"] >= 1 for s in sets.values())
    for found in document.against_target(said):
        assert found["reached"] is (found["met"] >= 0.9 and found["extra_mean"] <= 0.12)


def test_what_the_page_says_in_words_follows_from_the_figures() -> None:
    said = stored.track_record()
    for name, methods in said["finer_steps"].items():  # "more often than the cheapest prediction does"
        assert methods["rule"]["all"]["met_low"] > methods["cheapest predicted"]["all"]["met"], name
    for name, tested in said["one_load_test"].items():  # "They promise less than happens"
        before, after = (1 + tested[when]["extra_mean"] for when in ("before", "after"))
        assert 0 < tested["promised_mean"] < 1 - after / before, name
    rule = said["methods"][stored.KNOWN]["rule"]
    assert rule["all"]["met"] >= rule["all"]["stated"]  # "the probabilities are not too high"
    for methods in said["methods"].values():  # "TTFT is hard to predict"
        one, both = methods["rule"]["TPOT"], methods["rule"]["TPOT and TTFT"]
        assert one["stated"] > both["stated"] and one["extra_mean"] < both["extra_mean"]


def test_expected_errors_need_rows_of_other_models() -> None:
    rows = measured_rows()
    known = refits(rows).expected(MODELS[0], record.Rows.of(scored(rows), {}, PRICES).observed)
    assert isinstance(known, Expected) and ("measured", "tpot") not in known.spread  # two groups only
    assert ("relative", "tpot") in known.spread
