"""The fields of the workload form, named by their path in the workload file."""

from advisor.web.form_fields.asked import ADVANCED, FIELDS, is_asked, is_of_fleet, is_shown
from advisor.web.form_fields.fields import (
    COUNTS,
    CURVE,
    FILE,
    FORM_ONLY,
    LATENCIES,
    LATENCY,
    LINED,
    LINES,
    LIST,
    NUMBER,
    ONE_OF,
    SOME_OF,
    STACKS,
    SWITCH,
    TRACE_FILE,
    TRACE_TEXT,
    TRAFFIC_BY,
    VALUES,
    WHOLE,
    YAML,
    Field,
    Group,
)
from advisor.web.form_fields.question import QUESTION
from advisor.web.form_fields.values import (
    ENGLISH,
    checks_of,
    in_field,
    in_points,
    is_share,
    only_english,
    read,
    sections_text,
    stripped,
    typed,
)
