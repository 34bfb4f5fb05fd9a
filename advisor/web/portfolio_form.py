"""The form of a portfolio: a row for each workload, and what holds for the whole fleet. It works without scripts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from django.db import transaction
from django.forms import ChoiceField
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from advisor import advise, workload
from advisor.web import forms
from advisor.web.form_fields import FIELDS, YAML, Group
from advisor.web.form_html import ALL_FIELDS
from advisor.web.views import asked, earlier_of, started_from
from catalog.accounts import Right, caller_of, organisation_of, refused
from catalog.models import Organisation

MOST_ROWS = 20  # workloads of a portfolio
ROW = re.compile(r"row(\d{1,6})-")
KINDS = "kind"
OF_ROW = (
    "name", "model", KINDS,
    "traffic.requests_per_s.mean", "traffic.requests_per_s.peak", "batch.requests", "batch.deadline_hours",
    "traffic.input_tokens.mean", "traffic.output_tokens.mean", "traffic.documents_per_request",
    "slo.ttft_ms_p95", "slo.tpot_ms_p95", "slo.e2e_ms_p95",
    "training.tokens", "training.deadline_days", "training.every_days",
    "finetuning.tokens", "finetuning.method", "finetuning.deadline_days", "finetuning.every_days",
)  # fmt: skip
OF_FLEET = (
    "constraints.regions.allow", "constraints.max_usd_per_month", "constraints.acquisition",
    "owned", "constraints.accelerators.allow", "tco.horizon_months", "tags",
)  # fmt: skip
NAME = "name"
TYPED = (*(path for path in OF_ROW if not FIELDS[path].choices), YAML)  # what makes a row more than an empty one


class RowForm(forms.WorkloadForm):
    """One workload of the portfolio; what has no field of its own is written as YAML."""

    asked = {path: FIELDS[path] for path in OF_ROW}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(ChoiceField, self.fields[KINDS]).choices = [
            choice for choice in FIELDS[KINDS].choices if choice[0] != workload.PORTFOLIO
        ]
        self.raw: dict[str, Any] = {}

    @property
    def is_blank(self) -> bool:
        return not any(self.value_of(path).strip() for path in TYPED)

    def workload_errors(self, cleaned: Mapping[str, Any]) -> list[dict[str, str]]:
        if len(names := forms.models_in(cleaned)) > 1:
            return [workload.error("model", f"names {len(names)} models", "one; add a workload for each")]
        return super().workload_errors(cleaned)

    def combined(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        self.raw = super().combined(cleaned)
        return self.raw

    def groups(self) -> Iterator[dict[str, Any]]:
        return self.laid_out(
            (Group("", tuple(self.asked.values())), Group("Other settings", (ALL_FIELDS[YAML],), says="None"))
        )


class FleetForm(forms.WorkloadForm):
    """Name, limits and machines that all workloads share; validates the portfolio with the workloads of `rows`."""

    asked = {path: FIELDS[path] for path in (NAME, *OF_FLEET)}

    def __init__(self, *args: Any, rows: list[RowForm], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = rows

    def combined(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        raw = super().combined({**cleaned, KINDS: workload.PORTFOLIO})
        written = raw.get("workloads")
        parts = [*(row.raw for row in self.rows), *(written if isinstance(written, list) else [])]
        return {**raw, "kind": workload.PORTFOLIO, "workloads": parts}

    def workload_errors(self, cleaned: Mapping[str, Any]) -> list[dict[str, str]]:
        """Errors of the whole; those of a workload stand in its row."""
        errors = super().workload_errors(cleaned)
        wrong = not all(row.is_valid() for row in self.rows)
        return [item for item in errors if not (wrong and item["field"].startswith("workloads["))]

    def groups(self) -> Iterator[dict[str, Any]]:
        fleet = Group("Fleet", tuple(self.asked.values()))
        return self.laid_out((fleet, written()))


class PortfolioForm:
    """The rows and the fleet of one request."""

    def __init__(
        self, rows: list[RowForm], fleet: FleetForm, *, bound: bool, organisation: Organisation | None
    ) -> None:
        self.rows, self.fleet, self.is_bound = rows, fleet, bound
        self.blank = RowForm(prefix="rowNEW", organisation=organisation, initial=new_row())

    @classmethod
    def posted(cls, data: QueryDict, organisation: Organisation | None) -> "PortfolioForm":
        numbers = sorted({int(found[1]) for key in data if (found := ROW.match(key))})[:MOST_ROWS]
        removed = data.get("remove")
        rows = [RowForm(data, prefix=f"row{n}", organisation=organisation) for n in numbers if f"row{n}" != removed]
        if "add" in data and len(rows) < MOST_ROWS:
            number = max(numbers, default=0) + 1
            rows.append(RowForm(prefix=f"row{number}", organisation=organisation, initial=new_row()))
        filled = [row for row in rows if row.is_bound and not row.is_blank]
        fleet = FleetForm(data, organisation=organisation, rows=filled)
        return cls(rows, fleet, bound=True, organisation=organisation)

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any] | None, organisation: Organisation | None) -> "PortfolioForm":
        """The portfolio of an example or of an earlier question; two empty rows without one."""
        parts = [forms.from_spec(part, RowForm.asked) for part in (spec or {}).get("workloads", ())]
        rows = [
            RowForm(prefix=f"row{n}", organisation=organisation, initial=new_row() | part)
            for n, part in enumerate(parts or [{}, {}], 1)
        ]
        shared = {key: value for key, value in (spec or {}).items() if key not in ("workloads", "kind")}
        initial = forms.from_spec(shared, FleetForm.asked) if spec else forms.defaults()
        return cls(
            rows, FleetForm(initial=initial, organisation=organisation, rows=[]), bound=False, organisation=organisation
        )

    def is_valid(self) -> bool:
        """Whether all rows that are filled in and the whole are a portfolio."""
        rows = self.fleet.rows
        correct = [row.is_valid() for row in rows]
        if not rows and not self.fleet.value_of(YAML).strip():
            self.fleet.add_error(None, "Fill in at least one workload.")
        return self.fleet.is_valid() and all(correct)

    def errors(self) -> list[tuple[str, str, str]]:
        """(where, the control's ID, message) of each error; the ID is empty where the error is of no field."""
        found = []
        for at, row in enumerate(self.rows, 1):
            where = row.value_of(NAME) or f"Workload {at}"
            found += (
                [(f"{where}, {label}", id_, message) for label, id_, message in errors_of(row)] if row.is_bound else []
            )
        return found + errors_of(self.fleet)


def errors_of(form: forms.WorkloadForm) -> list[tuple[str, str, str]]:
    messages = [("", "", str(message)) for message in form.non_field_errors()]
    return messages + [(str(f.label), f.auto_id, str(message)) for f in form for message in f.errors]


def written() -> Group:
    """What has no field, as YAML."""
    return Group("Other settings", (ALL_FIELDS[YAML],), says="None")


def new_row() -> dict[str, str]:
    return {KINDS: "serving"}


def page(request: HttpRequest) -> HttpResponse:
    """The form; a valid one becomes a queued advice. The buttons that add and remove a row keep what was typed."""
    caller = caller_of(request)
    earlier = earlier_of(request, (request.POST or request.GET).get("from", ""))
    errors: list[tuple[str, str, str]] = []
    if request.method == "POST":
        if sent := refused(request, Right.PLAN, "portfolio"):
            return sent
        form = PortfolioForm.posted(request.POST, caller.organisation)
        if not request.POST.keys() & {"add", "remove"}:
            if form.is_valid():
                try:
                    with transaction.atomic():
                        return redirect("advice", asked(form.fleet.spec, caller, earlier).pk)
                except advise.QueueFull as error:
                    form.fleet.add_error(None, str(error))
            errors = form.errors()
    else:
        form = PortfolioForm.of_spec(started_from(request, earlier), organisation_of(request))
    context = {"form": form, "rows": list(numbered(form)), "earlier": earlier, "errors": errors}
    return render(request, "advisor/portfolio_form.html", context, status=422 if errors else 200)


def numbered(form: PortfolioForm) -> Iterator[dict[str, Any]]:
    for at, row in enumerate(form.rows, 1):
        yield {"number": at, "prefix": row.prefix, "groups": list(row.groups())}
