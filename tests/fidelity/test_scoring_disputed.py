"""The checks that put a measured row on the list of disputed ones."""

from tests.laboratory import disputed
from tests.measured_samples import row


def test_experts_over_more_ranks_than_chips():
    found = disputed.find([row(moe_tp="2", n_accelerators="1"), row(id="fine", moe_tp="1")])
    assert list(found) == ["run:tpot"] and "2 ranks but only 1 chips" in found["run:tpot"]


def test_two_values_of_one_configuration():
    rows = [row(id="a", value="10"), row(id="b", value="13"), row(id="c", value="20", concurrency_or_batch="32")]
    assert set(disputed.find(rows)) == {"a", "b"}


def test_noise_below_a_quarter_is_not_disputed():
    assert not disputed.find([row(id="a", value="10"), row(id="b", value="12")])


def users(*values):
    return [row(id=f"run{i}:tpot", value=str(value), concurrency_or_batch=str(2**i)) for i, value in enumerate(values)]


def test_a_token_time_that_falls_with_users_is_disputed():
    assert set(disputed.find(users(10, 30, 15, 20))) == {"run1:tpot"}


def test_a_deployment_that_falls_twice_is_disputed_whole():
    found = disputed.find(users(10, 30, 15, 40, 20))
    assert {f"run{i}:{metric}" for i in range(5) for metric in ("tpot", "ttft")} == set(found)


def test_the_written_list_is_what_the_checks_find(tmp_path):
    rows = [row(id="a", value="10"), row(id="b", value="13")]
    path = tmp_path / "disputed.csv"
    assert disputed.write(rows, path) == 2
    assert disputed.read(path) == disputed.find(rows)


def test_the_shipped_list_gives_every_row_a_reason():
    shipped = disputed.read()
    assert shipped and all(shipped.values())
