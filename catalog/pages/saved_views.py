"""The page that saves and deletes views. The lists themselves have no form with a token: they are kept."""

from http import HTTPStatus

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from catalog.accounts import Right, caller_of, needs, organisation_of
from catalog.lists import address, saved
from catalog.models import SavedView
from catalog.pages.lists import LISTS, page


class ViewForm(forms.Form):
    """A name for what one list shows. Saving under a known name replaces that view."""

    name = forms.CharField(max_length=60, label="Name", help_text="Such as: H100 in the EU, official prices")
    list_name = forms.ChoiceField(widget=forms.HiddenInput, choices=[(name, name) for name in LISTS])
    query = forms.CharField(max_length=2000, required=False, widget=forms.HiddenInput)

    def clean_query(self) -> str:
        given = QueryDict(str(self.cleaned_data["query"]).removeprefix("?"))
        listing = LISTS.get(self.data.get("list_name", ""))
        if listing is None:
            return ""
        known = {*listing.filterset.base_filters, "columns", "sort", "rows"}
        kept = QueryDict(mutable=True)
        for name, values in given.lists():
            if name in known:
                kept.setlist(name, values)
        return address.short(kept, listing.table.shown).removeprefix("?")


@needs(Right.PRICE)
def views(request: HttpRequest) -> HttpResponse:
    owner = organisation_of(request)
    rows = SavedView.objects.filter(organisation=owner)
    form: ViewForm | None
    if request.method == "POST" and request.POST.get("delete", "").isdecimal():
        for row in rows.filter(pk=int(request.POST["delete"][:18])):
            row.delete()
            messages.success(request, f"Deleted the view {row.name}.")
        return redirect("catalog:views")
    if request.method == "POST":
        form = ViewForm(request.POST)
        if form.is_valid():
            try:
                row = saved.save(owner, form.cleaned_data, caller_of(request).name)
            except saved.TooMany as error:
                form.add_error("name", str(error))
            else:
                messages.success(request, f"Saved the view {row.name}.")
                return redirect(f"{reverse('catalog:list', args=[row.list_name])}?{row.query}")
    else:
        asked = request.GET.get("list", "")
        initial = {"list_name": asked, "query": request.GET.get("query", "")}
        form = ViewForm(initial=initial) if asked in LISTS else None
    context = {
        "name": "accelerators" if form is None else str(form["list_name"].value()),
        "form": form,
        "of_lists": [(LISTS[name], name, list(rows.filter(list_name=name))) for name in LISTS],
        "any": rows.exists(),
    }
    wrong = form is not None and bool(form.errors)
    return page(request, "views", context, HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.OK)
