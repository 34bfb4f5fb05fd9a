"""What every section of an answer is built from: frozen pydantic models whose numbers carry a unit.

The JSON, the OpenAPI schema, pages and documents all come from these classes. A field's docstring is its description
in the schema; its unit stands there as `x-unit`. Keys that an answer does not have are absent from its JSON, as they
always were: only fields that were set are written.
"""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, core_schema

Json = dict[str, Any]


class Section(BaseModel):
    """A part of an answer. Unknown keys of stored answers are ignored; missing ones take their default."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, use_attribute_docstrings=True, arbitrary_types_allowed=False
    )

    @classmethod
    def read(cls, stored: Any) -> Self:
        """From JSON; pydantic.ValidationError where it is not this section."""
        return cls.model_validate(stored)

    def to_json(self) -> Json:
        """Plain dictionaries, lists, numbers and strings; fields that were never set are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def figure(self, path: str) -> Any:
        """The value at a dotted path such as `ttft_ms.p95`; None where a section on the way is absent.

        KeyError: there is no such field.
        """
        value: Any = self
        for name in path.split("."):
            if value is None:
                return None
            if not isinstance(value, Section) or not value.has(name):
                raise KeyError(path)
            value = getattr(value, name)
        return value

    @classmethod
    def has(cls, name: str) -> bool:
        """Whether there is such a field or property."""
        return name in cls.model_fields or isinstance(getattr(cls, name, None), property)

    def changed(self, **fields: Any) -> Self:
        """The same section with these fields in place of its own."""
        return self.model_copy(update=fields)


class Unit:
    """Marks a number with its unit. Whole numbers stay whole: 8 is not written as 8.0."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        whole = core_schema.int_schema(strict=True)
        if source is int:
            return whole
        return core_schema.union_schema([whole, core_schema.float_schema(strict=True, allow_inf_nan=False)])

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> Json:
        return {"type": "integer" if schema["type"] == "int" else "number", "x-unit": self.name}


Count = Annotated[int, Unit("1")]
Chips = Annotated[int, Unit("accelerators")]
Tokens = Annotated[float, Unit("tokens")]
WholeTokens = Annotated[int, Unit("tokens")]
Months = Annotated[int, Unit("months")]
Fraction = Annotated[float, Unit("fraction")]
Ratio = Annotated[float, Unit("ratio")]
Number = Annotated[float, Unit("1")]
Seconds = Annotated[float, Unit("s")]
Milliseconds = Annotated[float, Unit("ms")]
Hours = Annotated[float, Unit("h")]
PerSecond = Annotated[float, Unit("requests/s")]
TokensPerSecond = Annotated[float, Unit("tokens/s")]
Gib = Annotated[float, Unit("GiB")]
Mib = Annotated[float, Unit("MiB")]
Bytes = Annotated[float, Unit("B")]
BytesPerSecond = Annotated[float, Unit("B/s")]
Flops = Annotated[float, Unit("FLOP")]
FlopsPerSecond = Annotated[float, Unit("FLOP/s")]
FlopsPerByte = Annotated[float, Unit("FLOP/B")]
Bits = Annotated[float, Unit("bits")]
Watts = Annotated[float, Unit("W")]
Kilowatts = Annotated[float, Unit("kW")]
KilowattHours = Annotated[float, Unit("kWh")]
JoulesPerToken = Annotated[float, Unit("J/token")]
KgCo2ePerMtok = Annotated[float, Unit("kg CO2e per million tokens")]
KgCo2ePerKwh = Annotated[float, Unit("kg CO2e/kWh")]
Usd = Annotated[float, Unit("USD")]
UsdPerHour = Annotated[float, Unit("USD/h")]
UsdPerMonth = Annotated[float, Unit("USD/month")]
UsdPerMtok = Annotated[float, Unit("USD per million tokens")]
UsdPerKwh = Annotated[float, Unit("USD/kWh")]
UsdPerGb = Annotated[float, Unit("USD/GB")]


class Percentiles(Section):
    """A latency over all simulated requests."""

    mean: Milliseconds | None
    """Arithmetic mean; null where the workload has no such latency (TPOT of embeddings)."""
    p50: Milliseconds | None
    """Half of the requests are at least this fast."""
    p95: Milliseconds | None
    """95 of 100 requests are at least this fast; null if more than 5 are not served."""
    p99: Milliseconds | None
    """99 of 100 requests are at least this fast; null if more than 1 is not served."""
