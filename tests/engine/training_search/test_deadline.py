"""A run is ranked if it ends within the deadline, or within the longest run that was published."""

import pytest

from advisor.engine.training_search.why_not import LONGEST_DAYS, deadline_days, duration
from tests.engine.training_search.sample import asked, found_for, rented


def test_the_limit_is_the_deadline_the_time_between_runs_or_the_longest_published_run() -> None:
    assert deadline_days(asked(deadline_days=3.0)) == 3.0
    assert deadline_days(asked(deadline_days=None)) == LONGEST_DAYS
    assert deadline_days(asked(deadline_days=None, every_days=7.0)) == 7.0
    assert deadline_days(asked(deadline_days=2.0, every_days=7.0)) == 2.0


def test_every_ranked_run_is_in_time_and_shorter_deadlines_need_more_accelerators() -> None:
    chips = []
    for days in (2.0, 0.9, 0.4):
        first = found_for(asked(deadline_days=days), rented()).ranked[0]
        assert first.days <= days
        chips.append(found_for(asked(deadline_days=days), rented()).by_chip["big"][0].chips)
    assert chips == sorted(chips) and chips[0] < chips[-1]


def test_what_misses_the_deadline_says_by_how_much_and_which_one_would_do() -> None:
    found = found_for(asked(deadline_days=0.1), rented(fabric=64))
    assert found.ranked == () and found.too_late["big"].chips == 64
    (rejection,) = found.rejections
    assert rejection.reason == "misses_deadline" and rejection.limit == 0.1
    assert rejection.reached == pytest.approx(found.too_late["big"].days)
    assert "finetuning.deadline_days" in rejection.smallest_change
    assert rejection.detail.startswith("the fastest run, on 64 accelerators, takes 4.04 hours")
    assert "; the limit is the deadline of 0.1 days" in rejection.detail
    again = found_for(asked(deadline_days=float(rejection.changes[0].value)), rented(fabric=64))
    assert again.ranked[0].chips <= 64


@pytest.mark.parametrize(("days", "said"), [(3.5, "3.5 days"), (0.3, "7.2 hours"), (0.01, "14.4 minutes")])
def test_durations_read_as_people_say_them(days: float, said: str) -> None:
    assert duration(days) == said
