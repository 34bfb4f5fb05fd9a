"""The pages of an organization's own prices and discounts: add one, upload a table, list them."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from catalog.accounts import Right, caller_of, needs, organisation_of, why_not
from catalog.loading.fixtures import FixtureError
from catalog.models import Discount, Price
from catalog.pages.lists import page
from catalog.pricing import own
from catalog.pricing.derived import age
from catalog.pricing.imports import NotHeld

UNPROCESSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
MAX_SHOWN = 1000
MAX_PREFILL_CHARS = 120


@needs(Right.PRICE)
def new_price(request: HttpRequest) -> HttpResponse:
    """Adds one price. One that looks like a mistake is saved only on a second click."""
    book = own.Book(organisation_of(request))
    if request.method != "POST":
        return price_page(request, own.PriceForm(book=book, initial=offer_in(request, book)))
    form = own.PriceForm(request.POST, book=book)
    if not form.is_valid():
        return price_page(request, form, status=UNPROCESSABLE)
    line = own.examined(book, 1, form.row)
    if line.why and not form.cleaned_data["accept_unusual"]:
        return price_page(request, form, line.why, status=UNPROCESSABLE)
    name = f"{line.row['provider']} {line.row['instance']}"
    try:
        own.save(book, [replace(line, accept_unusual=True)], caller_of(request).name, own.FORM, name)
    except FixtureError as error:
        form.add_error(None, own.sentence(error))
        return price_page(request, form, status=UNPROCESSABLE)
    said = "This price was already saved" if line.sign == "=" else "Saved"
    messages.success(request, f"{said}: {name} at {own.price_text(line.row)}{converted(book, line)}.")
    return redirect("catalog:own-prices")


OFFER = ("accelerator", "accelerators", "provider", "instance", "region", "country", "term")


def offer_in(request: HttpRequest, book: own.Book) -> dict[str, str]:
    """The offer that the address names, as a link from a list does; a chip that is not in the catalog is left out."""
    given = {name: request.GET[name][:MAX_PREFILL_CHARS] for name in OFFER if request.GET.get(name)}
    return {name: value for name, value in given.items() if name != "accelerator" or value in book.chips}


def converted(book: own.Book, line: own.Line) -> str:
    """How a price in another currency became USD."""
    rate = book.rates.get(line.row["currency"])
    if line.row["currency"] == own.USD or rate is None or line.sign == "=":
        return ""
    listed = f"{line.row['listed_price']:,.2f} {rate.currency}"
    return f" ({listed}, converted with {rate.per_usd.normalize():f} {rate.currency} per USD of {rate.as_of})"


def price_page(request: HttpRequest, form: own.PriceForm, why: str = "", status: int = 200) -> HttpResponse:
    lead = (
        "Only your organization sees this price. Recommendations use it instead of the public price of the same offer."
    )
    context = {"name": "prices", "form": form, "title": "Add your price", "lead": lead, "why": why}
    return page(request, "own_price", context, status)


@needs(Right.PRICE)
def new_discount(request: HttpRequest) -> HttpResponse:
    book = own.Book(organisation_of(request))
    form = own.DiscountForm(request.POST if request.method == "POST" else None, book=book)
    if request.method == "POST" and form.is_valid():
        row = form.row
        try:
            added = own.save_discounts(book, [row], caller_of(request).name)
        except FixtureError as error:
            form.add_error(None, own.sentence(error))
        else:
            said = "Saved" if added.created else "This discount was already saved"
            unknown = row["provider"].lower() not in book.sellers
            hint = " No public price of this provider is in the catalog, so nothing changes yet." if unknown else ""
            messages.success(request, f"{said}: {percent(row['discount_fraction'])} off {row['provider']}.{hint}")
            return redirect("catalog:own-prices")
    lead = "A discount applies to the public prices of a provider. Only your organization sees it."
    context = {"name": "prices", "form": form, "title": "Add a discount", "lead": lead}
    return page(request, "own_price", context, UNPROCESSABLE if form.errors else 200)


# --- upload -----------------------------------------------------------------------------------------------------


class UploadForm(forms.Form):
    upload = forms.FileField(label="CSV file", required=False)
    table = forms.CharField(
        label="or paste the table",
        required=False,
        strip=False,
        max_length=own.MAX_BYTES,
        widget=forms.Textarea(attrs={"rows": 10}),
        help_text="With the column names in the first line.",
    )
    file_name = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)
    accept_unusual = forms.BooleanField(label="Save the unusual prices, too", required=False)

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if bool(given.get("upload")) == bool(str(given.get("table", "")).strip()) and not self.errors:
            raise forms.ValidationError("Give one of them: a file or a pasted table.")
        return given

    def given(self) -> tuple[str, str]:
        """The table and the name of its file. FixtureError: it is not text, or too long."""
        upload = self.cleaned_data["upload"]
        if not upload:
            return self.cleaned_data["table"], self.cleaned_data["file_name"] or "pasted table"
        content = upload.read(own.MAX_BYTES + 1)
        if len(content) > own.MAX_BYTES:
            raise FixtureError("the file is larger than 900 kB; split it")
        try:
            return content.decode("utf-8-sig").replace("\0", ""), str(upload.name)
        except UnicodeDecodeError as error:
            raise FixtureError("the file is not text in UTF-8; save it as CSV in UTF-8") from error


@needs(Right.PRICE)
def upload(request: HttpRequest) -> HttpResponse:
    """Shows what a table of prices would change, then saves it: all of it or nothing."""
    form = UploadForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"name": "prices", "form": form, "required": own.REQUIRED}
    context["optional"] = own.OWN_COLUMNS[len(own.REQUIRED) :]
    if request.method == "POST" and form.is_valid():
        book = own.Book(organisation_of(request))
        try:
            text, name = form.given()
            read = own.read_table(book, text)
            if "save" in request.POST and not read.wrong:
                accept = form.cleaned_data["accept_unusual"]
                lines = [replace(line, accept_unusual=accept) for line in read.lines]
                saved = own.save(book, lines, caller_of(request).name, own.TABLE, name)
                messages.success(request, saved_text(saved))
                return redirect("catalog:own-prices")
            context |= {"read": read, "changes": [shown(line) for line in read.lines], "file_name": name}
            context["form"] = UploadForm(initial={"table": text, "file_name": name})
        except FixtureError as error:
            form.add_error(None, own.sentence(error))
    wrong = bool(form.errors) or ("read" in context and bool(context["read"].wrong))
    return page(request, "own_upload", context, UNPROCESSABLE if request.method == "POST" and wrong else 200)


def shown(line: own.Line) -> dict[str, Any]:
    """A line of the preview."""
    return {
        "line": line,
        "sign": "?" if line.why else line.sign,
        "what": {"+": "new", "~": "newer price", "=": "saved already"}[line.sign],
        "term": own.TERM_NAMES[line.row["term"]],
        "kind": own.KIND_NAMES[line.row["kind"]],
        "usd": own.price_text(line.row),
        "old": f"{own.price_text(line.old)} on {line.old.as_of}" if line.old else "",
    }


def saved_text(saved: own.Saved) -> str:
    parts = [f"Prices: {saved.created} added, {saved.changed} with new notes or sources, {saved.unchanged} known."]
    if saved.held:
        parts.append(f"{len(saved.held)} look unusual and wait below.")
    return " ".join(parts)


# --- the list ---------------------------------------------------------------------------------------------------


def own_prices(request: HttpRequest) -> HttpResponse:
    """The organization's prices and discounts, and those prices that wait for a decision."""
    caller = caller_of(request)
    may_add = caller.may(Right.PRICE)
    if not caller.is_member:
        return redirect_to_login(request.get_full_path())
    if request.method == "POST" and not may_add:
        raise PermissionDenied(why_not(caller, Right.PRICE))
    owner = organisation_of(request)
    if request.method == "POST":
        return decided(request, owner)
    prices = Price.objects.filter(organisation=owner).select_related("accelerator").order_by("-as_of", "-pk")
    discounts = Discount.objects.filter(organisation=owner).select_related("accelerator").order_by("-as_of", "-pk")
    context = {
        "name": "prices",
        "owner": owner,
        "may_add": may_add,
        "why_not": "" if may_add else why_not(caller, Right.PRICE),
        "prices": [price_row(price) for price in prices[:MAX_SHOWN]],
        "more": max(prices.count() - MAX_SHOWN, 0),
        "discounts": [discount_row(each) for each in discounts],
        "waiting": [
            (held, own.price_text(held.row), own.TERM_NAMES[held.row["term"]]) for held in own.waiting_of(owner)
        ],
    }
    return page(request, "own_list", context)


def price_row(price: Price) -> dict[str, Any]:
    return {
        "price": price,
        "usd": own.price_text(price),
        "term": own.TERM_NAMES.get(price.term, price.term),
        "kind": own.KIND_NAMES.get(price.kind, price.kind),
        "age": age(price.as_of),
    }


def discount_row(discount: Discount) -> dict[str, Any]:
    return {
        "discount": discount,
        "percent": percent(discount.discount_fraction),
        "term": own.TERM_NAMES.get(discount.term, "every way"),
        "age": age(discount.as_of),
    }


def percent(fraction: float) -> str:
    return f"{100 * fraction:.4g}%"


def decided(request: HttpRequest, owner: Any) -> HttpResponse:
    """Saves or drops a price that waits."""
    release = "release" in request.POST
    pk = request.POST.get("release") or request.POST.get("discard") or ""
    try:
        own.decide(
            owner, int(pk) if pk.isascii() and pk.isdigit() and len(pk) < 16 else 0, release, caller_of(request).name
        )
        messages.success(request, "The price was saved." if release else "The price was dropped.")
    except (NotHeld, FixtureError) as error:
        messages.error(request, own.sentence(error))
    return redirect(reverse("catalog:own-prices"))
