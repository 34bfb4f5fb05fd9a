"""Result files of load generators: one reader a format, and what each run states."""

from advisor.load_results.files import FORMATS, format_of, read_runs, text_format, usable_runs
from advisor.load_results.reading import percentiles_of
from advisor.load_results.result import RECORDED, UNLIMITED, LoadResult, LoadResultError
