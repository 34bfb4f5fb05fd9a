"""Reading a measurements file: strict about its columns, clear about what is wrong."""

import pytest

from tests.laboratory.measurements import MeasurementsError
from tests.laboratory.measurements import unchecked as read
from tests.measured_samples import record, table, write


def test_rows_keep_text_and_read_the_value(tmp_path):
    (only,) = read(write(tmp_path / "rows.csv", record(value="12.5", tp="")))
    assert (only.value, only.tp, only.isl) == (12.5, "", "1024")


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(table(record()).replace("source_key", "source", 1))
    with pytest.raises(MeasurementsError, match="missing columns source_key"):
        read(path)


def test_a_further_column_is_ignored(tmp_path):
    path = tmp_path / "rows.csv"
    head, line = table(record()).splitlines()
    path.write_text(f"{head},extra\n{line},x\n")
    assert len(read(path)) == 1


def test_a_short_line_is_named_by_number(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(table(record()) + "only,two\n")
    with pytest.raises(MeasurementsError, match="line 3"):
        read(path)


def test_equal_ids_are_refused(tmp_path):
    with pytest.raises(MeasurementsError, match="same ID"):
        read(write(tmp_path / "rows.csv", record(), record()))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MeasurementsError, match="no such file"):
        read(tmp_path / "absent.csv")


def test_binary_input_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xff\xfe\x00rows")
    with pytest.raises(MeasurementsError, match="not UTF-8"):
        read(path)
