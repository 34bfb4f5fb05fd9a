"""A bill in FOCUS and tokens served, beside the forecast: exact totals, what is used and covered, refusals."""

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from advisor.actuals import ActualsError, files
from advisor.actuals.bill import CATEGORIES, cents, read_bill, tags_of
from advisor.actuals.comparison import compared, forecast_of, in_words
from advisor.actuals.tokens import read_tokens
from advisor.api import tokens as api_tokens
from tests import sample_advice
from tests.people import organisation

NEEDED = ("BilledCost", "EffectiveCost", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency")
START = datetime(2026, 10, 1, tzinfo=UTC)


def bill_of(*rows: dict[str, Any], names: tuple[str, ...] = NEEDED) -> bytes:
    """A bill in CSV; each row overrides a day of ordinary usage."""
    usual = {
        "BilledCost": "1", "EffectiveCost": "1", "ChargeCategory": "Usage", "BillingCurrency": "USD",
        "ChargePeriodStart": "2026-10-01T00:00:00Z", "ChargePeriodEnd": "2026-10-02T00:00:00Z",
    }  # fmt: skip
    out = io.StringIO()
    columns = [*names, *sorted({name for row in rows for name in row} - set(names))]
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows([usual | row for row in rows])
    return out.getvalue().encode()


MONEY = st.decimals(-(10**7), 10**7, places=10, allow_nan=False)
CHARGES = st.lists(
    st.fixed_dictionaries(
        {
            "BilledCost": MONEY, "EffectiveCost": MONEY, "ChargeCategory": st.sampled_from(CATEGORIES),
            "day": st.integers(0, 70), "Tags": st.sampled_from(["", '{"team": "a"}', "team=b; x=1", '{"team": null}']),
        }
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@given(CHARGES)
def test_totals_and_their_parts_agree_with_the_file_to_the_cent(charges: list[dict[str, Any]]) -> None:
    for charge in charges:
        charge["ChargePeriodStart"] = (START + timedelta(days=charge.pop("day"))).isoformat()
        charge["ChargePeriodEnd"] = ""
    result = compared(read_bill(bill_of(*charges), tag="team"), {}, None, "team")
    for kind, column in (("billed", "BilledCost"), ("effective", "EffectiveCost")):
        exact = sum(Fraction(charge[column]) for charge in charges)  # independent of decimal contexts
        total = Decimal(str(result["total"][kind]))
        assert abs(Fraction(total) - exact) <= Fraction(1, 200)
        for by in ("category", "month", "tag"):
            assert sum(Decimal(str(v)) for v in result["total"][f"{kind}_by_{by}"].values()) == total
        for month in result["months"]:
            of_month = [c for c in charges if c["ChargePeriodStart"].startswith(month["month"])]
            assert abs(Fraction(str(month[kind])) - sum(Fraction(c[column]) for c in of_month)) <= Fraction(1, 200)
            for parts in (list(month[f"{kind}_by_category"].values()), [each[kind] for each in month["by_tag"]]):
                assert sum(Decimal(str(v)) for v in parts) == Decimal(str(month[kind]))


# --- every form of file and every version of FOCUS gives the same sums --------------------------------------------

TAGGED = st.dictionaries(st.sampled_from(["team", "env", "cost center"]), st.sampled_from(["a", "b", "ü,;\"'", ""]))
LINES = st.lists(
    st.tuples(
        MONEY, MONEY, st.sampled_from(CATEGORIES), st.integers(0, 70), TAGGED, st.sampled_from(["USD", "USD", "EUR"]),
        st.integers(-48, 48), st.sampled_from(["Used", "Unused", ""]), st.sampled_from(["", "Correction"]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
PAIRS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.string())]))
TAGS_IN_PARQUET: dict[str, Any] = {  # as AWS, Google and Azure export them, and as table formats flatten them
    "map": (pyarrow.map_(pyarrow.string(), pyarrow.string()), lambda tags: list(tags.items())),
    "struct": (
        pyarrow.struct([(name, pyarrow.string()) for name in ("team", "env", "cost center")]),
        lambda tags: tags or None,
    ),
    "list": (PAIRS, lambda tags: [{"key": key, "value": value} for key, value in tags.items()]),
    "json": (pyarrow.string(), json.dumps),
    "large": (pyarrow.large_string(), json.dumps),
    "dictionary": (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), json.dumps),
}
LATER = {  # columns that an older version of FOCUS lacks
    "1.0": {"SkuMeter", "SkuPriceDetails", "CommitmentDiscountQuantity", "CommitmentDiscountUnit", "BillingExchange"},
    "1.1": {"BillingExchange"},
    "1.2": set(),
}


def columns_of(lines: list[Any], version: str) -> dict[str, list[Any]]:
    """A bill as columns, with the ones that this version of FOCUS has."""
    rows = []
    for billed, effective, category, day, tags, currency, hours, status, correction in lines:
        is_usage = category == "Usage"
        unused = is_usage and status == "Unused"
        rows.append(
            {
                "BilledCost": billed, "EffectiveCost": effective, "ChargeCategory": category,
                "BillingCurrency": currency, "ChargePeriodStart": START + timedelta(days=day),
                "ChargePeriodEnd": START + timedelta(days=day, hours=1), "Tags": tags,
                "ConsumedQuantity": None if unused or not is_usage else Decimal(hours),
                "ConsumedUnit": None if unused else "Hours", "PricingQuantity": Decimal(hours), "PricingUnit": "Hours",
                "CommitmentDiscountStatus": status or None, "ChargeClass": correction or None,
                "CommitmentDiscountQuantity": Decimal(hours) if unused else None, "CommitmentDiscountUnit": "Hours",
                "SkuPriceDetails": {"GpuCount": "8"}, "SkuMeter": "p5.48xlarge", "BillingExchange": "x",
                "ChargeDescription": "$98.32 per On Demand Linux p5.48xlarge Instance Hour",
            }
        )  # fmt: skip
    return {name: [row[name] for row in rows] for name in rows[0] if name not in LATER[version]}


def as_csv(columns: dict[str, list[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for cells in zip(*columns.values(), strict=True):
        texts = (
            c.isoformat() if isinstance(c, datetime) else json.dumps(c) if isinstance(c, dict) else c for c in cells
        )
        writer.writerow(["" if text is None else text for text in texts])
    return out.getvalue().encode()


def as_parquet(columns: dict[str, list[Any]], tags: str) -> bytes:
    amount, time = pyarrow.decimal128(38, 10), pyarrow.timestamp("us", "UTC")
    kinds = {"BilledCost": amount, "EffectiveCost": amount, "ChargePeriodStart": time, "ChargePeriodEnd": time}
    kinds |= {name: amount for name in columns if name.endswith("Quantity")}
    kind, form = TAGS_IN_PARQUET[tags]
    arrays = {name: pyarrow.array(cells, kinds.get(name)) for name, cells in columns.items() if name != "Tags"}
    arrays["Tags"] = pyarrow.array([form(each) for each in columns["Tags"]], kind)
    if "SkuPriceDetails" in columns:
        details = pyarrow.map_(pyarrow.string(), pyarrow.string())
        arrays["SkuPriceDetails"] = pyarrow.array([list(d.items()) for d in columns["SkuPriceDetails"]], details)
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), out, row_group_size=5)
    return out.getvalue()


@given(LINES, st.sampled_from(sorted(LATER)), st.sampled_from(["csv", "gz", *TAGS_IN_PARQUET]), st.booleans())
def test_each_form_and_version_has_the_totals_of_its_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], version: str, form: str, as_file: bool
) -> None:
    columns = columns_of(lines, version)
    content = as_parquet(columns, form) if form in TAGS_IN_PARQUET else as_csv(columns)
    content = gzip.compress(content) if form == "gz" else content
    source: Any = content
    if as_file:
        source = tmp_path_factory.mktemp("bill") / "bill"
        source.write_bytes(content)
    currencies = {line[5] for line in lines}
    if len(currencies) > 1:
        with pytest.raises(ActualsError, match="EUR and USD, which cannot be added; choose one currency"):
            read_bill(source)
    for currency in currencies:
        mine = [line for line in lines if line[5] == currency]
        read = read_bill(source, tag="team", currency=currency, accelerators={"p5.48xlarge": 8})
        assert (read.currency, read.rows, read.left_out) == (currency, len(lines), len(lines) - len(mine))
        for n, kind in enumerate(("billed", "effective")):
            assert exact(v for m in read.months.values() for v in getattr(m, kind).values()) == exact(
                c[n] for c in mine
            )
            for value in {line[4].get("team") or "(without this tag)" for line in mine}:
                wanted = exact(c[n] for c in mine if (c[4].get("team") or "(without this tag)") == value)
                assert exact(m.by_tag[value][n] for m in read.months.values() if value in m.by_tag) == wanted
        usage = [line for line in mine if line[2] == "Usage"]
        hours = exact(m.hours_used + m.hours_unused for m in read.months.values())
        assert hours == 8 * sum(line[6] for line in usage)
        result = compared(read, {}, forecast_of(OPTION), "team")
        assert abs(Fraction(str(result["total"]["billed"])) - exact(c[0] for c in mine)) <= Fraction(1, 200)
        assert in_words(result, markdown=True)  # whatever refunds leave


def exact(values: Iterable[Decimal]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def test_a_row_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    """A few kB of gzip are gigabytes: one line, one quoted cell, or one row of cells that have lines of their own."""
    head = b",".join(name.encode() for name in NEEDED) + b"\n"
    for repeated in (b"a" * 2**20, b'"' + b"a\n" * 2**19, b'"a\n",' * 2**18):
        path = tmp_path / "bill.csv.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(head)
            for _ in range(48):
                file.write(repeated)
        tracemalloc.start()
        with pytest.raises(ActualsError, match="more than 1,000,000 characters|field larger than field limit"):
            read_bill(path)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
        tracemalloc.stop()
    with pytest.raises(ActualsError, match="more than 1,000,000 characters"):
        read_bill(b"BilledCost," * 10**6)


@pytest.mark.parametrize("kind", ["a list of many", "long values"])
def test_a_small_parquet_file_cannot_be_large_in_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UPLOADED_VALUES", 1_000)
    usual = {name: [cell] for name, cell in zip(NEEDED, ["1", "1", "Usage", START, START, "USD"], strict=True)}
    many, long = pyarrow.array([[1] * 5_000]), pyarrow.array([b"a" * 900], pyarrow.binary(900))
    table = pyarrow.table(usual | {"Tags": many if kind == "a list of many" else long})
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    with pytest.raises(ActualsError, match="column Tags"):
        read_bill(out.getvalue())
    out = io.BytesIO()
    pyarrow.parquet.write_table(table.rename_columns([*NEEDED, "x_Other"]), out)
    assert read_bill(out.getvalue()).rows == 1  # a column that nothing needs is not read


def test_machines_commitments_credits_and_taxes_are_told_apart() -> None:
    day = {"ConsumedUnit": "Hours", "SkuPriceDetails": '{"GpuCount": 8, "InstanceType": "p5.48xlarge"}'}
    rows = [
        day | {"ConsumedQuantity": "24", "BilledCost": "0", "EffectiveCost": "600", "ContractedCost": "1000",
               "CommitmentDiscountStatus": "Used"},
        day | {"ConsumedQuantity": "6", "BilledCost": "250", "EffectiveCost": "250", "ContractedCost": "250"},
        day | {"ConsumedQuantity": "", "CommitmentDiscountQuantity": "8", "CommitmentDiscountUnit": "Hours",
               "BilledCost": "0", "EffectiveCost": "200", "CommitmentDiscountStatus": "Unused"},
        {"ChargeCategory": "Purchase", "BilledCost": "800", "EffectiveCost": "0"},
        {"ChargeCategory": "Tax", "BilledCost": "105", "EffectiveCost": "105"},
        {"ChargeCategory": "Credit", "BilledCost": "-50", "EffectiveCost": "-50"},
        {"ChargeCategory": "Adjustment", "BilledCost": "-20", "EffectiveCost": "-20"},
        {"ConsumedQuantity": "100", "ConsumedUnit": "GB", "BilledCost": "3", "EffectiveCost": "3", "ListCost": "3"},
    ]  # fmt: skip
    result = compared(read_bill(bill_of(*rows)), {}, None)
    month = result["months"][0]
    assert (month["billed"], month["effective"], month["compared_cost"]) == (1088.0, 1088.0, 1033.0)
    assert month["accelerator_hours"] == {"used": 240.0, "paid": 304.0}
    assert month["utilization_fraction"] == pytest.approx(240 / 304)
    assert month["commitment_coverage_fraction"] == pytest.approx(1000 / 1253)
    assert month["commitment_utilization_fraction"] == pytest.approx(600 / 800)
    said = " ".join(month["explained"])
    assert "25% of the commitments" in said and "Tax of 105.00" in said and "Credit of -50.00" in said


@pytest.mark.parametrize(
    ("row", "hours"),
    [
        ({"ConsumedUnit": "GPU Hours", "ConsumedQuantity": "5"}, 5),
        ({"ConsumedUnit": "Hrs", "ConsumedQuantity": "5", "SkuMeter": "BoxUsage:p5.48xlarge"}, 40),
        ({"ConsumedUnit": "Hour", "ConsumedQuantity": "5", "x_InstanceType": "P5.48XLARGE"}, 40),
        ({"ConsumedUnit": "Hours", "ConsumedQuantity": "5", "SkuPriceDetails": '{"x_GPUCount": "4"}'}, 20),
        ({"ConsumedUnit": "Hours", "ConsumedQuantity": "5", "SkuMeter": "c7i.large"}, 0),
        ({"ConsumedUnit": "GB-Months", "ConsumedQuantity": "5", "SkuMeter": "p5.48xlarge"}, 0),
    ],
)  # fmt: skip
def test_accelerators_of_a_row_are_found_where_bills_have_them(row: dict[str, str], hours: int) -> None:
    month = read_bill(bill_of(row), accelerators={"p5.48xlarge": 8}).months["2026-10"]
    assert month.hours_used == hours


def test_columns_are_found_by_name_in_any_case_and_missing_ones_are_named() -> None:
    content = (
        b"billed_cost;EFFECTIVECOST;Charge Category;chargeperiodstart;billing_currency\n1.5;1;usage;2026-10-03;usd\n"
    )
    read = read_bill(content)
    assert read.currency == "USD" and read.months["2026-10"].billed == {"Usage": Decimal("1.5")}
    assert any("CommitmentDiscountStatus" in note for note in read.notes)
    with pytest.raises(ActualsError, match="lacks the columns EffectiveCost, BillingCurrency of FOCUS"):
        read_bill(b"BilledCost,ChargeCategory,ChargePeriodStart\n1,Usage,2026-10-01\n")


def test_currencies_are_not_added() -> None:
    content = bill_of({}, {"BillingCurrency": "EUR", "BilledCost": "7"})
    with pytest.raises(ActualsError, match="line 3: has EUR and USD"):
        read_bill(content)
    read = read_bill(content, currency="eur")
    assert read.currency == "EUR" and read.left_out == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"BilledCost": "1,5"}, "line 2, BilledCost: '1,5' is not an amount"),
        ({"BilledCost": "NaN"}, "is not an amount"),
        ({"EffectiveCost": "1e999999"}, "is not an amount"),
        ({"ChargePeriodStart": "yesterday"}, "is not a time; write 2026-11-01T00:00:00Z"),
        ({"ChargePeriodStart": ""}, "is not a time"),
        ({"ChargePeriodStart": "9999-12-31"}, "is not a time"),
        ({"ChargePeriodStart": "0001-01-01T00:00:00+05:00"}, "is not a time"),
        ({"ChargeCategory": "Fee"}, "is none of Usage, Purchase, Tax, Credit, Adjustment"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(change: dict[str, str], said: str) -> None:
    with pytest.raises(ActualsError) as refused:
        read_bill(bill_of(change))
    assert said in str(refused.value)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode) | st.binary(max_size=99).map(b"PAR1".__add__)
       | st.binary(max_size=99).map(gzip.compress))  # fmt: skip
def test_no_content_is_an_internal_error(content: bytes) -> None:
    for read in (read_bill, read_tokens):
        with pytest.raises(ActualsError):
            read(content)


@pytest.mark.parametrize("at", [-(2**55), -(2**62), 2**62, 253_402_300_800_000_000])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_times_of_parquet_out_of_range_are_refused(at: int, zone: str | None) -> None:
    times = pyarrow.array([at], pyarrow.int64()).cast(pyarrow.timestamp("us", zone))
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"day": times, "input_tokens": [1], "output_tokens": [1]}), buffer)
    with pytest.raises(ActualsError):
        read_tokens(buffer.getvalue())


def test_small_uploads_of_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "UPLOADED_ROWS", 10)
    path = tmp_path / "tokens.parquet"
    row = {"day": ["2026-11-01"], "input_tokens": [1], "output_tokens": [1]}
    pyarrow.parquet.write_table(pyarrow.table({name: value * 11 for name, value in row.items()}), path)
    with pytest.raises(ActualsError, match="more than 10 rows"):
        read_tokens(path.read_bytes())
    assert read_tokens(path)["2026-11"].total == 22  # the operator's own file


def test_a_long_text_of_many_rows_is_held_once() -> None:
    count, text, buffer = 400, "a" * 4_000_000, io.BytesIO()
    one = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), [text])
    columns = {"day": ["2026-11-01"] * count, "input_tokens": [1] * count, "output_tokens": [1] * count, "note": one}
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, dictionary_pagesize_limit=2**24, compression="zstd")
    before = pyarrow.default_memory_pool().max_memory()
    assert len(buffer.getvalue()) < 10_000 and read_tokens(buffer.getvalue())["2026-11"].input == count
    assert pyarrow.default_memory_pool().max_memory() - before < 200_000_000  # spread out, they are 1.6 GB


def test_a_finely_divided_amount_is_rounded() -> None:
    table = b"day,input_tokens,output_tokens\n2026-01-01,100000000000000.000000000000000000001,1\n"
    assert read_tokens(table)["2026-01"].input == 10**14


@given(st.text(max_size=60))
def test_no_tags_are_an_internal_error(text: str) -> None:
    assert isinstance(tags_of(text), dict)


def test_tags_as_json_as_pairs_and_as_text() -> None:
    wanted = {"team": "search", "env": "prod"}
    for given_tags in (json.dumps(wanted), "team=search; env=prod", list(wanted.items()),
                       json.dumps([{"key": k, "value": v} for k, v in wanted.items()]),
                       json.dumps(wanted)[1:-1]):  # fmt: skip
        assert tags_of(given_tags) == wanted


def test_parquet_and_gzip_give_the_same_sums(tmp_path: Path) -> None:

    costs = [Decimal("1.005"), Decimal("-0.015"), Decimal("10.0000000001")]
    rows = [{"BilledCost": cost, "EffectiveCost": cost, "Tags": '{"team": "a"}'} for cost in costs]
    packed, table = tmp_path / "bill.csv.gz", tmp_path / "bill.parquet"
    packed.write_bytes(gzip.compress(bill_of(*rows)))
    columns = {
        "BilledCost": pyarrow.array(costs, pyarrow.decimal128(30, 10)),
        "EffectiveCost": pyarrow.array([float(c) for c in costs]),
        "ChargeCategory": ["Usage"] * 3, "BillingCurrency": ["USD"] * 3,
        "ChargePeriodStart": pyarrow.array([START] * 3, pyarrow.timestamp("ms", "UTC")),
        "Tags": pyarrow.array([[("team", "a")]] * 3, pyarrow.map_(pyarrow.string(), pyarrow.string())),
    }  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table(columns), table)
    for file in (packed, table):
        month = read_bill(file, tag="team").months["2026-10"]
        assert month.billed["Usage"] == month.effective["Usage"] == sum(costs)
        assert month.by_tag.keys() == {"a"}
        assert cents(month.billed["Usage"]) == Decimal("10.99")


# --- tokens -----------------------------------------------------------------------------------------------------


def test_tokens_by_hour_are_summed_by_month_and_model() -> None:
    content = (
        b"Hour,Model,prompt_tokens,completion_tokens,requests\n2026-10-31T23:00:00Z,a,100,10,1\n"
        b"2026-11-01T00:00:00+01:00,a,200,20,2\n2026-11-01T00:00:00Z,b,400,40,4\n"
    )
    every, one = read_tokens(content), read_tokens(content, "a")
    assert {m: (s.input, s.output, s.requests) for m, s in every.items()} == {
        "2026-10": (300, 30, 3), "2026-11": (400, 40, 4),
    }  # fmt: skip
    assert list(one) == ["2026-10"]
    with pytest.raises(ActualsError, match="lacks columns: output_tokens"):
        read_tokens(b"day,input_tokens\n2026-10-01,1\n")
    with pytest.raises(ActualsError, match="cannot be negative"):
        read_tokens(b"day,input_tokens,output_tokens\n2026-10-01,-1,1\n")


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1, max_size=8), min_size=1, max_size=3)
)
def test_counters_of_prometheus_are_summed_over_restarts(pods: list[list[tuple[int, bool]]]) -> None:
    """Each pod: how much it served in each interval, and whether it was started anew before that."""
    expected, series, begun = 0, [], int(START.timestamp())
    for number, intervals in enumerate(pods):
        value, values = 1000, [[begun, "1000"]]
        for n, (served, restarted) in enumerate(intervals, start=1):
            restarts = restarted and served < value
            value = served if restarts else value + served
            expected += served
            values.append([begun + 3600 * n, str(value)])
        series.append({"metric": {"__name__": "vllm:generation_tokens_total", "pod": str(number)}, "values": values})
    noise = {"metric": {"__name__": "vllm:request_generation_tokens_sum"}, "values": [[begun, "1"], [begun + 9, "99"]]}
    document = {"status": "success", "data": {"resultType": "matrix", "result": [*series, noise]}}
    assert read_tokens(json.dumps(document).encode())["2026-10"].output == expected


# --- forecast ---------------------------------------------------------------------------------------------------


def october(cost: float, hours: float, *, chips: int = 4) -> bytes:
    """One charge for the whole of October."""
    return bill_of(
        {"BilledCost": str(cost), "EffectiveCost": str(cost), "ConsumedQuantity": str(hours), "ConsumedUnit": "Hours",
         "SkuPriceDetails": json.dumps({"GpuCount": chips}), "ChargePeriodEnd": "2026-11-01T00:00:00Z"}
    )  # fmt: skip


OPTION = {
    "label": "4 x H200 SXM", "usd_per_month": 7300.0, "usd_per_mtok_input": 1.0, "usd_per_mtok_output": 4.0,
    "usd_per_mtok_blended": 1.5, "accelerator_count": 4, "output_tokens_per_s_at_capacity": 4000.0,
}  # fmt: skip


def test_a_month_as_planned_costs_as_planned_and_nothing_is_explained() -> None:
    forecast = forecast_of(OPTION)
    planned = forecast.of(744)
    mtok = planned["mtok"]
    made = (planned["cost"] - mtok) / 3  # of 1 USD for each token, and 3 more for each that is generated
    served = f"day,input_tokens,output_tokens\n2026-10-05,{(mtok - made) * 1e6:.0f},{made * 1e6:.0f}\n"
    result = compared(read_bill(october(7440, 744)), read_tokens(served.encode()), forecast)
    month = result["months"][0]
    assert month["hours"] == 744 and planned["cost"] == pytest.approx(7440)
    for kind in ("input", "output", "blended"):
        assert month["actual"][f"per_mtok_{kind}"] == pytest.approx(planned[f"per_mtok_{kind}"], rel=1e-6)
    assert month["explained"] == ["The cost without taxes and credits is equal to the forecast for these 744 hours."]
    assert month["load_fraction"] == pytest.approx(made * 1e6 / (4000 * 744 * 3600))


def test_differences_are_explained_by_traffic_machines_and_price() -> None:
    served = b"day,input_tokens,output_tokens\n2026-10-05,1000000000,100000000\n"
    result = compared(read_bill(october(16368, 1488)), read_tokens(served), forecast_of(OPTION))
    month, said = result["months"][0], " ".join(result["months"][0]["explained"])
    assert "120% above the forecast for these 744 hours" in said
    assert "Accelerator hours paid are 100% above the plan" in said
    assert "price of an accelerator hour is 10% above" in said and "Traffic is lower than planned: 78% below" in said
    given, made = 1000 * month["actual"]["per_mtok_input"], 100 * month["actual"]["per_mtok_output"]
    assert given + made == pytest.approx(month["compared_cost"])  # nothing is lost between both
    for text in (in_words(result, markdown=False), in_words(result, markdown=True)):
        assert "16,368.00" in text and "2026-10" in text


# --- CLI and REST -----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_command_compares_with_a_stored_answer_and_with_a_file(tmp_path: Path, capsys: Any) -> None:
    advice = sample_advice.advice()
    bill, answer, tokens = (tmp_path / name for name in ("bill.csv", "answer.json", "tokens.csv"))
    bill.write_bytes(october(11000, 744))
    answer.write_text(json.dumps(sample_advice.result()))
    tokens.write_text("day,input_tokens,output_tokens\n2026-10-05,1000000000,100000000\n")
    found = []
    for forecast in (["--advice", str(advice.pk)], ["--answer", str(answer)]):
        call_command("actuals", "--bill", str(bill), "--tokens", str(tokens), *forecast, "--format", "json")
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and found[0]["total"]["billed"] == 11000.0
    assert found[0]["months"][0]["forecast"]["cost"] == pytest.approx(10220 * 744 / 730)
    call_command("actuals", "--bill", str(bill))
    assert "Total billed 11,000.00 USD" in capsys.readouterr().out


@pytest.mark.django_db
def test_rest_and_the_page_compare_what_is_uploaded(client: Client) -> None:
    advice = sample_advice.advice()
    path = f"/api/v1/advice/{advice.pk}/actuals"

    def files(content: bytes) -> dict[str, Any]:
        return {"bill": SimpleUploadedFile("bill.csv", content)}

    headers = {"Authorization": f"Bearer {api_tokens.make('ci', 'read')[0]}"}
    told = client.post(f"{path}?rank=1", files(october(11000, 744)), headers=headers)
    assert told.status_code == 200 and told.json()["total"]["effective"] == 11000.0
    wrong = client.post(path, files(bill_of({"BilledCost": "x"})), headers=headers)
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "bill"
    assert "line 2, BilledCost" in wrong.json()["errors"][0]["message"]
    for query, status in (("rank=9", 422), ("rank=x", 400), ("only=team", 422)):
        assert client.post(f"{path}?{query}", files(october(1, 1)), headers=headers).status_code == status
    assert client.post(path, {}, headers=headers).status_code == 400
    theirs = api_tokens.make("x", "admin", organisation=organisation("theirs"))[0]
    other = {"Authorization": f"Bearer {theirs}"}
    assert client.post(path, files(october(1, 1)), headers=other).status_code == 404
    queued = sample_advice.advice(state="queued").pk
    assert client.post(f"/api/v1/advice/{queued}/actuals", files(october(1, 1)), headers=headers).status_code == 409
    shown = client.post(f"/advice/{advice.pk}/actuals", {**files(october(11000, 744)), "rank": "1"}).content.decode()
    assert "11,000.00" in shown and "Compare" in client.get(f"/advice/{advice.pk}/actuals").content.decode()
    mixed = {**files(bill_of({"BilledCost": "7"}, {"BillingCurrency": "EUR"})), "rank": "1", "currency": "usd"}
    assert "billed 7.00 USD" in client.post(f"/advice/{advice.pk}/actuals", mixed).content.decode()
    bad = client.post(f"/advice/{advice.pk}/actuals", {**files(b"x"), "rank": "1"})
    assert bad.status_code == 422 and "lacks the columns" in bad.content.decode()


def test_without_the_status_of_commitments_their_coverage_is_unknown() -> None:
    status = {"CommitmentDiscountStatus": "Used"}
    (unknown,) = read_bill(bill_of({})).months.values()
    (known,) = read_bill(bill_of({}, status)).months.values()
    assert unknown.eligible == 0 and (known.covered, known.eligible) == (1, 2)
