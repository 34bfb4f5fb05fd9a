"""The live estimate below the question form: the first options of the quick ranking."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as known
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from advisor.api import Exceeded, limits
from advisor.web import forms
from advisor.web.what_if.controls import applies
from advisor.workload import WorkloadError
from catalog.accounts import organisation_of
from catalog.models import default_organisation
from catalog.pricing import reader

SHOWN = 3  # options
MISSING = (  # what a question lacks, as the answer names it
    known("model"),
    known("mean input tokens"),
    known("mean output tokens"),
    known("requests and deadline of the batch"),
    known("requests per second or users"),
)


def in_english_or(text: str) -> str:
    """A sentence of the engine; in other languages, where to read it."""
    if get_language() == reader.ENGLISH:
        return text
    return gettext("There is no estimate for this question. Submit it to read why, in English.")


@never_cache
@require_POST
def fragment(request: HttpRequest) -> HttpResponse:
    """A fragment with the first options of the form's question so far, or with what is missing."""
    from advisor.answer import quick  # here, so that web workers load the engine only for estimates

    organisation = organisation_of(request)
    form = forms.WorkloadForm(request.POST, organisation=organisation)
    valid = form.is_valid()
    context: dict[str, object] = {"fields": [], "missing": []}
    try:
        limits.of_quick(request)
        raw = form.combined(form.cleaned_data)
        if raw.get("kind") is not None and not applies(raw):
            context["unknown"] = gettext("Training runs and portfolios have no quick estimate yet.")
        elif wrong := [form.fields[name].label for name in form.errors if form.data.get(name)]:
            context["fields"], context["invalid"] = wrong[:5], True
        elif valid:  # whatever its kind needs is there: images and speech need no token counts
            ranking = quick.quick_answer(form.spec, organisation)
            context |= {"ranking": ranking, "options": ranking.options[:SHOWN]}
        elif missing := quick.missing_from(raw):
            context["missing"] = [gettext(name) for name in missing]
        else:
            context["invalid"] = True
    except (Exceeded, quick.Busy):
        context["unknown"] = gettext("Too many estimates at once. The next change tries again.")
    except WorkloadError as error:
        context["unknown"] = in_english_or(str(error))
    return render(request, "advisor/_quick_estimate.html", context)


def load() -> None:
    """Loads the engine, and the rows of the catalog that all questions read, by estimating a preset."""
    from advisor.answer import quick

    if question := forms.preset("support-chat"):
        quick.quick_answer(question, default_organisation())
