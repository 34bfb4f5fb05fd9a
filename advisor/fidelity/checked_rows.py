"""Finds cells that no measured row can have, before anything is predicted."""

from collections.abc import Container
from dataclasses import dataclass

from advisor.fidelity.rows import Row, case_of
from advisor.fidelity.training.rows import training_case


class Everything:
    """Has every name."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class AnyCatalog:
    """A catalog with every model and accelerator: whether a row can be read must not depend on the catalog."""

    models: Container[str] = Everything()
    accelerators: Container[str] = Everything()


def fault(row: Row) -> str:
    """Why nothing can be derived from a row; empty if something can."""
    try:
        if row.task == "training":
            training_case(row)
        else:
            case_of(row, AnyCatalog())
    except (ValueError, ArithmeticError, LookupError, TypeError) as error:
        return str(error)
    return ""
