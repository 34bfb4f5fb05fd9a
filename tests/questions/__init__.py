"""Forty questions with the range of answers an expert expects, and the arithmetic behind each range.

`questions.yaml` holds them; `test_questions.py` asks the shipped catalog; `python -m tests.questions` writes the page
docs/reference/questions.md from the same file.
"""

import ast
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reference" / "questions.md"
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}  # fmt: skip


def questions() -> list[dict[str, Any]]:
    return list(yaml.safe_load((HERE / "questions.yaml").read_text()))


def evaluate(text: str | float, answers: Mapping[str, Any]) -> Any:
    """The value of an expression of numbers, + - * / **, and paths into the answers such as a.memory.weights_gib."""
    return _value(ast.parse(str(text), mode="eval").body, answers)


def _value(node: ast.expr, answers: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left, answers), _value(right, answers))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, answers)
        case ast.Name(id=name):
            return answers[name]
        case ast.Attribute(value=value, attr=name):
            return _value(value, answers)[name]
        case ast.Subscript(value=value, slice=index):
            return _value(value, answers)[_value(index, answers)]
    raise ValueError(f"{ast.unparse(node)}: only numbers, + - * / ** and paths are allowed")
