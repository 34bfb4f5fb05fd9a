"""Asks SGLang's own command-line parser whether it takes some options. No GPU is needed.

    python sglang_configuration.py ROWS.csv VERDICTS.csv
    python sglang_configuration.py --options OPTIONS.txt

The columns are those of vllm_configuration.py; nothing but the options is judged. What SGLang checks after parsing
(ServerArgs.resolve_once) imports its compiled kernels, so it is not recorded here.
"""

import argparse
import contextlib
import csv
import io
import shlex
import sys
from pathlib import Path

import option_values


def refusal(parser: argparse.ArgumentParser, options: str) -> str:
    """What the parser says against these options; empty: it takes them."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser.parse_args(["--model-path", "model", *shlex.split(options)])
        except SystemExit:
            return said.getvalue().partition("error: ")[2].strip().splitlines()[0]
    return ""


def main(*paths: str) -> None:
    from sglang import __version__
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    if paths[0] == "--options":
        Path(paths[1]).write_text(option_values.text_of("sglang", __version__, parser))
        return
    with open(paths[0], newline="") as given, open(paths[1], "w", newline="") as told:
        reader = csv.DictReader(given)
        writer = csv.DictWriter(told, [*(reader.fieldnames or ()), "accepted", "said"], lineterminator="\n")
        writer.writeheader()
        for row in reader:
            said = refusal(parser, row["options"])
            writer.writerow(row | {"accepted": "no" if said else "yes", "said": said})


if __name__ == "__main__":
    main(*sys.argv[1:])
