"""Every claim has a finding, false claims are refuted, and the page belongs to this engine and catalog."""

import re
from pathlib import Path
from typing import Any

import pytest

from catalog.loading.fixtures import FixtureError
from tests.claims import claims
from tests.claims.checks import CHECKS

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "claims.md"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
NEAR = 0.35  # how far a new calibration may move a figure before the page must be written again


@pytest.fixture(scope="module")
def found(shipped: None, django_db_blocker: Any) -> list[tuple[claims.Claim, claims.Finding]]:
    with django_db_blocker.unblock():
        return claims.judged(CHECKS)


def by_id(found: list[tuple[claims.Claim, claims.Finding]]) -> dict[str, claims.Finding]:
    return {claim.id: finding for claim, finding in found}


def test_each_of_the_64_claims_has_a_finding_with_its_reason(found: Any) -> None:
    assert [claim.id for claim, _ in found] == [f"c{n:02}" for n in range(1, 65)]
    assert {finding.verdict for _, finding in found} == set(claims.VERDICTS)
    assert all(finding.reason and finding.figure for _, finding in found)


@pytest.mark.parametrize("name", ["c02", "c03", "c17", "c18", "c41", "c45", "c46", "c49", "c50", "c52"])
def test_what_is_sparse_summed_or_does_not_fit_is_refuted(found: Any, name: str) -> None:
    assert by_id(found)[name].verdict == "refuted"
    assert name in PAGE.read_text(encoding="utf-8").split("## Refuted")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c01", "141 GB"),
        ("c17", "989"),
        ("c23", "43 GB, 40 GiB"),
        ("c43", "3.15e+23"),
        ("c45", "1.4 s"),
        ("c52", "295"),
    ],
)
def test_figures_that_no_calibration_moves(found: Any, name: str, said: str) -> None:
    assert said in by_id(found)[name].figure


def test_only_what_no_part_of_the_engine_computes_is_not_judged(found: Any) -> None:
    assert [name for name, finding in by_id(found).items() if finding.verdict == "not judged"] == ["c58"]


def test_logits_are_most_of_what_recomputed_layers_leave(found: Any) -> None:
    """Llama-3-8B by hand: 128,256 logits of 10 bytes against 32 states of 4,096 in 16 bits."""
    assert f"{128256 * 10 / (128256 * 10 + 32 * 4096 * 2):.0%}" in by_id(found)["c36"].figure


def skeleton(text: str) -> str:
    return NUMBER.sub("#", text)


def test_the_page_is_in_step(found: Any) -> None:
    """Word for word, its figures up to what a calibration may move; else: python -m tests.claims --write-docs."""
    written, now = PAGE.read_text(encoding="utf-8"), claims.page(found, claims.Desk().day)
    assert skeleton(written) == skeleton(now), "run python -m tests.claims --write-docs docs/reference/claims.md"
    for old, new in zip(NUMBER.findall(written), NUMBER.findall(now), strict=True):
        before, after = (float(value.replace(",", "")) for value in (old, new))
        assert abs(after - before) <= NEAR * max(abs(before), abs(after)) + 2, (
            f"{old} is now {new}: write the page again"
        )


def test_a_file_of_claims_with_a_double_or_a_wrong_column_is_refused(tmp_path: Path) -> None:
    text = claims.FILE.read_text(encoding="utf-8")
    file = tmp_path / "claims.csv"
    file.write_text(text + text.splitlines()[1] + "\n", encoding="utf-8")
    with pytest.raises(FixtureError, match="c01 is set twice"):
        claims.read(file)
    file.write_text("id,what\n1,2\n", encoding="utf-8")
    with pytest.raises(FixtureError, match="the columns are"):
        claims.read(file)


def test_a_claim_that_names_its_units_itself_gets_no_second_one() -> None:
    (power,) = [claim for claim in claims.read() if claim.id == "c19"]
    assert claims.stated_text(power) == "400 W and about 1000 W (two figures in one text)"


def test_a_claim_without_a_check_is_an_error() -> None:
    with pytest.raises(FixtureError, match="c64"):
        claims.judged({name: check for name, check in CHECKS.items() if name != "c64"})
