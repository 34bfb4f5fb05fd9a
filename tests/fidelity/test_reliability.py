"""How often limits hold that are predicted to: on groups that the probabilities did not see."""

import numpy as np
import pytest

from advisor.fidelity import stored
from advisor.fidelity.stored import MOST_CALIBRATION_ERROR
from tests.laboratory import reliability
from tests.laboratory.reliability import BOTH, HeldOut

CHIPS, GROUPS, ROWS = 30, 4, 5


def rows(shift: float = 0.0, correlation: float = 0.5, seed: int = 1) -> tuple[list[HeldOut], list[HeldOut]]:
    """TTFT and TPOT of groups on chips: skewed errors that the chips share only in distribution."""
    draw = np.random.default_rng(seed)
    ttft, tpot = [], []
    for chip in range(CHIPS):
        for group in range(GROUPS):
            for run in range(ROWS):
                common, own = draw.normal(size=2)
                z = correlation * common + np.sqrt(1 - correlation**2) * own
                name = f"{chip}|{group}"
                ttft.append(HeldOut(run, name, str(chip), 0.1 + shift + (0.5 * z if z > 0 else 0.2 * z)))
                tpot.append(HeldOut(run, name, str(chip), 0.15 * common))
    return ttft, tpot


def test_groups_like_the_others_meet_their_limits_as_often_as_predicted() -> None:
    ttft, tpot = rows()
    for lines in (
        reliability.of_figure(ttft),
        reliability.of_figure(tpot),
        reliability.of_both(reliability.pairs(ttft, tpot)),
    ):
        assert [line.multiple for line in lines] == list(reliability.MULTIPLES)
        assert reliability.calibration_error(lines) < 0.02
        assert [line.predicted for line in lines] == sorted(line.predicted for line in lines)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.9])
def test_the_correlation_of_the_errors_is_found(correlation: float) -> None:
    ttft, tpot = rows(correlation=correlation)
    assert reliability.correlation(reliability.pairs(ttft, tpot)) == pytest.approx(correlation, abs=0.08)
    assert reliability.correlation(reliability.pairs(ttft[:5], tpot[:5])) is None


def test_a_chip_does_not_inform_its_own_probabilities() -> None:
    """Of two chips, each gets its probabilities from the other, however far apart they are."""
    ttft, _ = rows()
    near = [row for row in ttft if row.unit == "0"]
    far = [row._replace(log_ratio=row.log_ratio + 9.0) for row in ttft if row.unit == "1"]
    known = reliability.distribution(np.array([row.log_ratio for row in near]), [row.group for row in near])
    for line in reliability.of_figure([*near, *far]):
        assert line.predicted == pytest.approx(0.5 * known.share_within(line.multiple), abs=1e-9)  # the far chip's half


def test_groups_count_alike_however_many_rows_they_have() -> None:
    ttft, _ = rows()
    repeated = [row for row in ttft for _ in range(20 if row.group == "3|1" else 1)]
    for a, b in zip(reliability.of_figure(ttft), reliability.of_figure(repeated), strict=True):
        assert (a.predicted, a.observed) == pytest.approx((b.predicted, b.observed), abs=0.005)


def test_one_unit_alone_has_no_table() -> None:
    ttft, tpot = (of[: GROUPS * ROWS] for of in rows())
    assert reliability.tables({"measured": {"ttft": ttft, "tpot": tpot}}) == {"measured": {}}


def test_the_published_tables_meet_their_target_and_cover_every_figure() -> None:
    report = stored.fit_scores()
    assert report is not None
    for basis in ("measured", "relative", "datasheet"):
        tables = report["reliability"][basis]
        assert set(tables) == {"ttft", "tpot", BOTH}
        for table in tables.values():
            error = np.mean([abs(line["predicted"] - line["observed"]) for line in table["limits"]])
            assert table["calibration_error"] == pytest.approx(error, abs=2e-4)
            assert error <= MOST_CALIBRATION_ERROR
