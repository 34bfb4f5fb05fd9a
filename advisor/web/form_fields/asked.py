"""All fields of the workload form, and which of them a kind of workload takes and shows."""

from advisor.engine.terms import KINDS, Kind
from advisor.web.form_fields.buying import BALANCE, BUYING, FILED, FINANCE, FORECAST, OBJECTIVE, PLACES, RUN, SITE
from advisor.web.form_fields.fields import CHOSEN_BY_SERVING, LATENCY, NOT_FOR_TRAINING, OF_SERVING, TRAFFIC_BY, YAML
from advisor.web.form_fields.question import QUESTION
from advisor.web.form_fields.workload_details import (
    ABOUT,
    ADAPTING,
    CONVERSATIONS,
    LEVELS,
    MEDIA,
    PRECISION,
    PREFERENCES,
    RECIPE,
    RECORDED,
)

ADVANCED = (
    BUYING, OBJECTIVE, ABOUT, PRECISION, LEVELS, CONVERSATIONS, MEDIA, RECORDED, RECIPE, ADAPTING, PREFERENCES,
    PLACES, RUN, SITE, FORECAST, FINANCE, BALANCE, FILED,
)  # fmt: skip
FIELDS = {field.path: field for group in QUESTION + ADVANCED for field in group.fields if field.path != YAML}


def is_asked(path: str, kind: Kind) -> bool:
    """Whether this kind of workload takes the field; what other fields hold is not sent on."""
    section = path.partition(".")[0]
    if section in KINDS and KINDS[section].trains:
        return section in kind.sections
    if kind.trains and section in OF_SERVING:
        return False
    if section == "batch":
        return kind.has_deadline
    if path.startswith(("traffic.requests_per_s", "traffic.users", TRAFFIC_BY)):
        return kind.has_arrivals
    if path.startswith("traffic.output_tokens") or path in ("structured_output", LATENCY):
        return kind.generates_tokens
    return True


def is_of_fleet(path: str) -> bool:
    """Whether a portfolio takes the field for all its workloads; each of them has the others itself."""
    return path not in ("model", "task", "structured_output", LATENCY, TRAFFIC_BY) and not path.startswith(
        ("traffic.", "slo.", "batch.", "training.", "finetuning.", "adapters.")
    )


def is_shown(path: str, kind: Kind) -> bool:
    """Whether the page shows the field for this kind of workload: it takes it, and it can change the answer."""
    if path.startswith("traffic.image_output"):
        return kind.makes == "images"
    if path == "traffic.documents_per_request":
        return kind.makes == "scores"
    if path.startswith("adapters."):
        return kind.serves_adapters
    if path == LATENCY:
        path = "slo.tpot_ms_p95"
    if kind.trains and (path in NOT_FOR_TRAINING or path.startswith(CHOSEN_BY_SERVING)):
        return False
    unused = (path[:at] for at in [*(i for i, each in enumerate(path) if each == "."), len(path)])
    return is_asked(path, kind) and all(kind.uses(part) for part in unused)
