"""The formats of published measurements, each read into runs with what they say and their figures."""

from pathlib import Path

from advisor import load_results
from advisor.evidence.formats import inferencex, llama_bench, load_generators, measured_rows
from advisor.evidence.formats.reading import EvidenceError, Reading, content_of, objects_of, table_of
from catalog.loading.bounded import BoundedError

FORMATS = {each.NAME: each.read for each in (measured_rows, inferencex, llama_bench)} | load_generators.READERS
ROWS = measured_rows.NAME


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
    for each in (measured_rows, llama_bench):
        if each.is_table(text):
            return each.NAME
    if found := load_results.text_format(text):
        return found
    start = text.lstrip()[:1]
    records = [*objects_of(text)] if start and start in "[{" else [*table_of(text)]
    if len(records) == 1 and isinstance(inner := next(iter(records[0].values()), None), list):
        records = [*records, *(each for each in inner if isinstance(each, dict))]
    for record in records[:2]:
        if load_generators.offline_kind(record):
            return "vllm"
        for each_format in (llama_bench, inferencex):
            if each_format.is_one(record):
                return each_format.NAME
        if found := load_results.format_of(record):
            return found
    keys = ", ".join(map(str, list(records[0])[:8])) if records else "nothing"
    raise EvidenceError(f"is not in a known format ({', '.join(FORMATS)}): it has {keys}; name its format with --from")


__all__ = ["FORMATS", "ROWS", "EvidenceError", "Reading", "read"]
