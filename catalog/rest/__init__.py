"""What REST views share: strict fields and bodies, the JSON parser, lists, and problem documents."""

from catalog.rest.errors import (
    CONTENT_TYPE,
    Conflict,
    ProblemSerializer,
    TooLarge,
    Unprocessable,
    flat,
    problems,
    refusal,
)
from catalog.rest.errors import document as problem_document
from catalog.rest.fields import Body, Number, OneOf, Pattern, Text, Whole, YesNo
from catalog.rest.listing import PAGE, Filters, KnownParameters, Ordering, Pages, columns, refuse_empty, refuse_unknown
from catalog.rest.parsers import StrictJSONParser, read_body
from catalog.rest.selection import selected
