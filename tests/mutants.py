"""Do the tests notice a wrong line? `make mutants` changes one place at a time and runs the tests of that module.

Covers the modules where a mistake costs most: cost, memory and step time, intake, forms, permissions. A sample of
changes (mutants) is drawn with a fixed seed; each is tried alone in a copy of the tree. A mutant is caught if a test
fails. `python -m tests.mutants --seed 2 --count 100` prints every mutant and the diffs of those that survived.
"""

import argparse
import ast
import difflib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
LEAST_COVERED = 0.9  # of the branches of each module
LIMIT_S = 300  # a mutant that loops for ever is caught
SHARED = "numba scipy.optimize hypothesis.strategies pydantic django celery yaml psycopg redis".split()

STEP = [
    f"tests/engine/step/test_{name}.py" for name in ("operators", "memory", "layout", "lane", "step_time", "ledger")
]
STEP += [f"tests/engine/step/test_{name}.py" for name in ("duration", "splits", "encoder", "adapters", "power")]
STEP += ["tests/engine/step/test_power_ledger.py", "tests/engine/search/test_worked_examples.py"]
INTAKE = [
    f"tests/workload/test_{name}.py" for name in ("errors", "workload_text", "workload_refused", "schema", "traffic")
]
INTAKE += [f"tests/workload/test_workload_{name}.py" for name in ("file", "set", "catalog")]
INTAKE += ["tests/workload/test_workload_any.py", "tests/api/test_error_lists.py"]
FORMS = [f"tests/web/test_{name}.py" for name in ("form_values", "form_workload", "form_fields", "page_ask")]
ACCESS = ["tests/api/test_token_rules.py", "tests/api/test_tokens.py", "tests/ops/test_deletion.py"]
LIMITS = ["tests/api/test_counting.py", "tests/api/test_api_limits.py", "tests/probes/test_limits.py"]

# area -> module -> its test files, the fastest first
AREAS: dict[str, dict[str, list[str]]] = {
    "cost": {
        "advisor/engine/cost/hourly.py": [
            *(f"tests/engine/cost/test_{name}.py" for name in ("hourly", "money", "tco")),
            "tests/engine/step/test_power.py",
            "tests/engine/cost/test_hour_cost.py",
        ],
        "advisor/engine/cost/site.py": ["tests/engine/cost/test_site.py", "tests/engine/cost/test_hour_cost.py"],
        "advisor/engine/cost/tco.py": ["tests/engine/cost/test_tco.py"],
    },
    "memory and step time": {
        "advisor/engine/step/adapters.py": ["tests/engine/step/test_adapters.py"],
        "advisor/engine/step/drafts/heads.py": ["tests/engine/step/test_heads.py"],
        "advisor/engine/step/duration.py": STEP,
        "advisor/engine/step/media/encoder.py": [
            "tests/engine/step/test_encoder_batches.py",
            "tests/engine/step/test_encoder.py",
        ],
        "advisor/engine/step/kv_offload.py": ["tests/engine/step/test_offload.py"],
        "advisor/engine/step/lane.py": [*STEP, "tests/engine/step/test_heads.py"],
        "advisor/engine/step/lane_times.py": STEP,
        "advisor/engine/step/layout.py": STEP,
        "advisor/engine/step/ledger.py": STEP,
        "advisor/engine/step/memory.py": STEP,
        "advisor/engine/kernels/products.py": STEP,
        "advisor/engine/kernels/collectives.py": STEP,
        "advisor/engine/step/operators.py": STEP,
        "advisor/engine/step/power.py": ["tests/engine/step/test_power.py", "tests/engine/step/test_power_ledger.py"],
        "advisor/engine/step/drafts/speculative.py": [
            *(f"tests/engine/step/test_{name}.py" for name in ("drafts", "drafting", "drafting_model", "heads"))
        ],
        "advisor/engine/step/step_time.py": STEP,
    },
    "intake": {
        "advisor/inputs/check.py": ["tests/workload/test_workload_catalog.py", *FORMS[1:]],
        "advisor/workload/fixed/deployment.py": [
            "tests/workload/test_deployment.py",
            "tests/answer/test_estimate.py",
            "tests/answer/test_estimate_api.py",
        ],
        "advisor/workload/embedding.py": INTAKE,
        "advisor/workload/errors.py": INTAKE,
        "advisor/workload/parts.py": ["tests/workload/test_parts.py", *INTAKE],
        "advisor/workload/schema.py": INTAKE,
        "advisor/workload/text.py": INTAKE,
        "advisor/workload/trace_files.py": ["tests/workload/test_traffic.py", "tests/inputs/test_question.py"],
        "advisor/workload/traffic.py": ["tests/workload/test_traffic.py", *INTAKE],
    },
    "forms": {"advisor/web/forms.py": FORMS, "advisor/web/form_fields/__init__.py": FORMS},
    "permissions": {
        "advisor/api/deletions.py": ["tests/ops/test_deletion.py"],
        "advisor/api/limits.py": [*LIMITS, *ACCESS, "tests/api/test_counting.py", "tests/web/test_login_limits.py"],
        "advisor/api/tokens.py": ACCESS,
        "advisor/ops/login_limits.py": ["tests/web/test_login_limits.py", "tests/web/test_login.py"],
        "advisor/ops/private_answers.py": ["tests/ops/test_private_answers.py", "tests/web/test_login.py"],
        "advisor/web/deletion_views.py": ["tests/ops/test_deletion.py"],
        "catalog/accounts/access.py": [*ACCESS, "tests/web/test_login.py"],
        "catalog/deletion.py": ["tests/ops/test_deletion.py"],
        "catalog/pages/deletion.py": ACCESS,
        "probes/api/limits.py": ["tests/probes/test_limits.py"],
    },
}

SWAPPED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.Pow: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    area: str
    module: str
    line: int
    start: int  # bytes of the file that are replaced
    end: int
    new: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)


def changes(node: ast.AST) -> Iterator[str]:
    """The other forms of one node."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in SWAPPED[type(operator)]:
                yield ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.Compare(left, operators, rights):  # low < x < high
            for i, operator in enumerate(operators):
                for other in SWAPPED[type(operator)]:
                    yield ast.unparse(ast.Compare(left, [*operators[:i], other(), *operators[i + 1 :]], rights))
        case ast.BinOp(left, operator, right) if not (is_text(left) or is_text(right)):
            for other in SWAPPED.get(type(operator), ()):
                yield ast.unparse(ast.BinOp(left, other(), right))
        case ast.BoolOp(operator, values):
            yield ast.unparse(ast.BoolOp(SWAPPED[type(operator)][0](), values))
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.Constant(bool(value)):
            yield repr(not value)
        case ast.Constant(int(value)):
            yield repr(value + 1)
        case ast.Constant(float(value)):
            yield repr(value * 2 + 1)
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            yield ast.unparse(ast.UnaryOp(ast.Not(), test))
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "pass"


def mutated_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything but documentation, types, texts, `__all__`, decorators, asserts, and strict= of zip."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            match node:
                case ast.JoinedStr() | ast.Assert() | ast.Assign([ast.Name("__all__")]) | ast.keyword("strict"):
                    continue
                case ast.AST():
                    yield node
                    yield from mutated_nodes(node)


def mutants_of(area: str, module: str) -> Iterator[Mutant]:
    source = (ROOT / module).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in mutated_nodes(ast.parse(source)):
        for new in changes(node):
            place = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            new = new if new == "pass" or isinstance(node, ast.Constant) else f"({new})"
            yield Mutant(area, module, place.lineno, start, end, new)


def run_here(copy: Path, files: list[str]) -> NoReturn:
    """Becomes a run of these tests in the copy."""
    os.setsid()
    os.chdir(copy)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    quick = ["-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--no-migrations"]
    os._exit(pytest.main(["-q", *quick, "--hypothesis-seed=0", *files]))


def passes(copy: Path, files: list[str]) -> bool:
    """Whether these tests pass in the copy, in a fork of this process: what all of them import is imported once."""
    if not (child := os.fork()):
        try:
            run_here(copy, files)
        finally:
            os._exit(1)  # whatever a mutant raises: nothing of this process may run twice
    began = time.monotonic()
    while time.monotonic() - began < LIMIT_S:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def survives(copy: Path, mutant: Mutant, number: int) -> bool:
    """Whether every test passes with this mutant in the copy."""
    path, loop = copy / mutant.module, copy / "advisor/engine/scheduler/loop.py"
    source, guarded = path.read_bytes(), loop.read_bytes()
    try:
        path.write_bytes(mutant.applied(source))
        os.utime(path, (number + 1, number + 1))  # bytecode is reused by the second
        if path.name == "duration.py":  # a guard refuses any change of the formula: the tests are to notice it
            loop.write_bytes(guarded.replace(b"if (FIELDS, duration.SOURCE) !=", b"if False and () !="))
            shutil.rmtree(copy / ".numba", ignore_errors=True)
        return passes(copy, AREAS[mutant.area][mutant.module])
    finally:
        path.write_bytes(source)
        if path.name == "duration.py":
            loop.write_bytes(guarded)
            shutil.rmtree(copy / ".numba", ignore_errors=True)


def diff(mutant: Mutant) -> str:
    source = (ROOT / mutant.module).read_bytes()
    before, after = (text.decode().splitlines() for text in (source, mutant.applied(source)))
    return "\n".join(
        line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
    )


def copied(folder: Path) -> Path:
    """The files that git would carry, as they are in the working tree, in `folder`."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def branch_coverage() -> int:
    """Prints the branch coverage of each module by its area's tests; 1 if one is below LEAST_COVERED."""
    uncovered = 0
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "coverage", "run", "--branch", "--data-file", f"{folder}/data"]
        for area, modules in AREAS.items():
            files = list(dict.fromkeys(file for own in modules.values() for file in own))
            tests = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
            subprocess.run([*run, f"--include={','.join(modules)}", *tests], cwd=ROOT, check=True, stdout=sys.stderr)
            report = [sys.executable, "-m", "coverage", "json", "-q", "--data-file", f"{folder}/data"]
            subprocess.run([*report, "-o", f"{folder}/{area}.json"], cwd=ROOT, check=True)
            measured = json.loads(Path(folder, f"{area}.json").read_text())["files"]
            for module in modules:
                found = measured[module]["summary"]
                covered, branches = found["covered_branches"], found["num_branches"]
                uncovered += covered < LEAST_COVERED * branches
                print(f"{module}: {covered} of {branches} branches")
            print(f"{area}: {share(measured.values(), 'covered_branches', 'num_branches')} of branches", flush=True)
    return 1 if uncovered else 0


def share(files: Iterable[Any], part: str, whole: str) -> str:
    """Of all files together, in percent."""
    found = list(files)
    return f"{sum(f['summary'][part] for f in found) / sum(f['summary'][whole] for f in found):.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--area", choices=AREAS, help="only mutants of this area")
    parser.add_argument("--numbers", help="only these of the sample, such as 3,17")
    parser.add_argument("--coverage", action="store_true", help="instead: the branch coverage of these modules")
    args = parser.parse_args()
    if args.coverage:
        return branch_coverage()
    every = [m for area, modules in AREAS.items() for module in modules for m in mutants_of(area, module)]
    sample = list(enumerate(random.Random(args.seed).sample(every, args.count), 1))
    if args.numbers:
        sample = [(n, m) for n, m in sample if str(n) in args.numbers.split(",")]
    sample = [(n, m) for n, m in sample if args.area in (None, m.area)]
    print(f"{len(sample)} of {len(every):,} mutants, seed {args.seed}", flush=True)
    os.nice(10)
    caught, tried = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="assay-mutants-") as folder:
        copy = copied(Path(folder))
        os.environ |= {"NUMBA_CACHE_DIR": str(copy / ".numba"), "ASSAY_VAR": str(copy / "var")}
        for name in SHARED:
            importlib.import_module(name)
        hypothesis.settings.register_profile("any speed", deadline=None, suppress_health_check=hypothesis.HealthCheck)
        hypothesis.settings.load_profile("any speed")  # a slow machine catches nothing
        for files in dict.fromkeys(tuple(AREAS[m.area][m.module]) for _, m in sample):
            if not passes(copy, list(files)):
                print(f"without any change these fail: {' '.join(files)}", file=sys.stderr)
                return 2
        for number, mutant in sample:
            began = time.monotonic()
            lives = survives(copy, mutant, number)
            tried[mutant.area] += 1
            caught[mutant.area] += not lives
            verdict = "SURVIVED" if lives else "caught"
            print(f"{number:3} {verdict:8} {mutant.module}:{mutant.line} ({time.monotonic() - began:.0f} s)")
            print(diff(mutant) if lives else "", end="\n" if lives else "", flush=True)
    for area, count in tried.items():
        print(f"{area}: {caught[area]} of {count} caught")
    print(f"all: {caught.total()} of {tried.total()} caught (seed {args.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
