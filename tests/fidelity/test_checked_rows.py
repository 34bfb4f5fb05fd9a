"""An unexpected value in a measured row is answered with its row and column, whatever it is and wherever it stands."""

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from advisor.fidelity import COLUMNS, Row
from advisor.fidelity.checked_rows import AnyCatalog
from advisor.fidelity.rows import case_of
from advisor.fidelity.training.rows import SOURCES, training_case
from tests.laboratory.measurements import MeasurementsError, check, read

BLANK = dict.fromkeys((name for name in COLUMNS if name != "value"), "")
SERVED = {
    "id": "a", "task": "serving", "metric": "tokens_per_s", "model_id": "meta-llama/Llama-3.1-8B",
    "accelerator_slug": "h100-sxm", "n_accelerators": "8", "mode": "agg", "tp": "8", "pp": "1", "ep": "1",
    "moe_tp": "1", "weights_dtype": "fp8", "kv_dtype": "fp8", "framework": "vLLM 0.9", "isl": "1024", "osl": "128",
    "concurrency_or_batch": "64", "params_note": "client=steady;requests_per_user=4", "date": "2026-05-01",
    "source_key": "somewhere", "notes": "SLO p99 TTFT<=450ms TPOT<=40ms", "confidence": "A",
}  # fmt: skip
SPLIT = {"id": "b", "mode": "disagg", "tp": "", "pp": "", "prefill_pool": "workers=2;batch=4;tp=4",
         "decode_pool": "workers=1;batch=64;tp=8;ep=8"}  # fmt: skip
TRAINED = {
    "id": "c", "task": "training", "metric": "step_time_s", "weights_dtype": "bf16", "isl": "4096",
    "concurrency_or_batch": "GBS=256 MBS=1", "notes": "CP 1 VP 1", "framework": "NeMo 25.11", "date": "2026-05-01",
    "params_note": "recipe=amp;parallel=fsdp;micro_batch=1;micro_batches=2;dp=8;tp=1;pp=1;zero=3;compile=1",
}  # fmt: skip
ROWS = [
    Row(value=1.0, **BLANK | SERVED),
    Row(value=1.0, **BLANK | SERVED | SPLIT),
    *(Row(value=1.0, **BLANK | SERVED | TRAINED | {"source_key": source, "id": source}) for source in SOURCES),
]
JUNK = [
    "block", "inf", "1e999", "-1", "0", "nan", "2.3.4", ".", "a=b=c", ";;", "x=1", "compile=block", "micro_batch=0",
    "dp=block", "zero=1.5", "GBS=0 MBS=0", "qps=1.2.3", "qps=.", "SLO p99 TTFT<=.ms TPOT<=.ms", "0 tokens/step/chip",
    "9" * 400, "\0", "²", "max batch 0", "requests_per_user=inf", "batch_per_rank=0", "CP 0", "tp=block;workers=0",
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_cell_with_any_text_is_read_or_refused_with_row_and_column(row: Row) -> None:
    check(row, "file.csv")
    refused = 0
    for column in BLANK:
        for junk in JUNK:
            for text in (junk, f"{getattr(row, column)};{junk}", f"{getattr(row, column)} {junk}"):
                other = replace(row, **{column: text})
                try:
                    check(other, "file.csv")
                except MeasurementsError as error:
                    refused += 1
                    assert f"row {other.id}, column " in str(error) and "Traceback" not in str(error)
                    continue
                training_case(other) if other.task == "training" else case_of(other, AnyCatalog())
    assert refused


def test_the_value_that_is_wrong_is_shown_with_its_column() -> None:
    row = next(row for row in ROWS if row.source_key == "h200_train")
    with pytest.raises(
        MeasurementsError, match=r"file.csv: row h200_train, column params_note: .*compile=block is not a whole"
    ):
        check(replace(row, params_note=row.params_note.replace("compile=1", "compile=block")), "file.csv")
    with pytest.raises(MeasurementsError, match=r"column decode_pool: 'tp' cannot be read \('tp' is not KEY=VALUE\)"):
        check(replace(ROWS[1], decode_pool="tp"), "file.csv")


def test_the_command_names_row_and_column_and_exits_with_2(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.source_key == "h200_train")
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerow({name: getattr(row, name) for name in COLUMNS} | {"params_note": "recipe=amp;compile=block"})
    with pytest.raises(MeasurementsError):
        read(path)
    with pytest.raises(CommandError, match="row h200_train, column params_note: .*compile=block") as error:
        call_command("fidelity", "--measurements", str(path), stdout=StringIO())
    assert error.value.returncode == 2
