"""Number types and the base class of all sections of the workload file."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
Positive = Annotated[float, Field(gt=0, le=1e15)]
NotNegative = Annotated[float, Field(ge=0, le=1e15)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[float, Field(ge=1, le=1e8)]


def whole(value: object) -> object:
    """JSON writers may write the integer 2 as 2.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(whole)]


def number_as_mean(written: Any) -> BeforeValidator:
    """Accepts a plain number as the section's mean. `written`: the type of all accepted forms, for the JSON schema."""

    def as_section(value: object) -> object:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"mean": value} if is_number else value

    return BeforeValidator(as_section, json_schema_input_type=written)


def check_hours(values: list[float]) -> list[float]:
    if len(values) not in (0, 24, 168):
        message = f"has {len(values)} numbers, not 24 or 168"
        raise PydanticCustomError("hours", message, {"expected": "24, or 168 from Monday 0:00"})
    return values


GridFactor = Annotated[float, Field(ge=0, le=5)]
GridCurve = Annotated[
    list[GridFactor],
    AfterValidator(check_hours),
    Field(json_schema_extra={"anyOf": [{"minItems": hours, "maxItems": hours} for hours in (0, 24, 168)]}),
]


class Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def whole_numbers(cls, value: object) -> object:
        return whole(value)
