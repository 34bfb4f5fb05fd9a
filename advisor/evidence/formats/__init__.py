"""The formats of published measurements, each read into runs with what they say and their figures."""

from pathlib import Path

from advisor.evidence.formats import aiperf, guidellm, inferencex, llama_bench, measured_rows, sglang, vllm
from advisor.evidence.formats.reading import EvidenceError, Reading, content_of, objects_of, table_of
from catalog.loading.bounded import BoundedError

FORMATS = {
    each.NAME: each.read for each in (measured_rows, inferencex, vllm, sglang, llama_bench, guidellm, aiperf)
}  # fmt: skip
ROWS = measured_rows.NAME
OF_OBJECTS = (sglang, vllm, llama_bench, guidellm, aiperf, inferencex)  # in this order: the first that fits
TABLES = (measured_rows, llama_bench, aiperf)


def read(path: Path, name: str = "") -> tuple[str, list[Reading]]:
    """(format, runs) of a file, whose format its content tells if `name` is empty. EvidenceError; OSError."""
    try:
        text = content_of(path)
        chosen = name or recognized(text)
        return chosen, FORMATS[chosen](text)
    except BoundedError as error:
        raise EvidenceError(str(error)) from error


def recognized(text: str) -> str:
    """The format of a text. EvidenceError: it is none of them."""
    for each in TABLES:
        if each.is_table(text):
            return each.NAME
    start = text.lstrip()[:1]
    records = [*objects_of(text)] if start and start in "[{" else [*table_of(text)]
    if len(records) == 1 and isinstance(inner := next(iter(records[0].values()), None), list):
        records = [*records, *(each for each in inner if isinstance(each, dict))]
    for record in records[:2]:
        for each_format in OF_OBJECTS:
            if each_format.is_one(record):
                return each_format.NAME
    keys = ", ".join(map(str, list(records[0])[:8])) if records else "nothing"
    raise EvidenceError(f"is not in a known format ({', '.join(FORMATS)}): it has {keys}; name its format with --from")


__all__ = ["FORMATS", "ROWS", "EvidenceError", "Reading", "read"]
