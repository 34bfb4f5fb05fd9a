"""An organization's own prices and discounts: reading them from a form, a table or REST, checking and saving them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import structlog
from django import forms
from django.db import IntegrityError, transaction

from advisor.engine.terms import exact_text
from catalog import clock
from catalog.accounts import audit
from catalog.form_fields import DayField, NumberField
from catalog.loading import fixtures, load
from catalog.loading.bounded import BoundedError, read_csv
from catalog.loading.fixtures import CONFIDENCES, ORIGINS, PRICE_COLUMNS, USD, FixtureError, Row
from catalog.loading.places import code_of
from catalog.models import Accelerator, Discount, ExchangeRate, HeldPrice, Organisation, Price
from catalog.pricing import checks as price_checks
from catalog.pricing import imports as price_imports

log = structlog.get_logger("assay.prices")
FORM, TABLE, REST = "form", "csv", "rest"  # how prices came in, as the log of imports names it
MAX_ROWS = 2000
MAX_LINES = 5 * MAX_ROWS  # empty ones too
MAX_BYTES = 900_000  # so that a form can hold it
MAX_ACCELERATORS = 100_000
MAX_TEXT = 2000
TERM_NAMES = {
    "on_demand": "on demand",
    "spot": "spot",
    "reserved_1y": "1 year",
    "reserved_3y": "3 years",
    "capacity_block": "capacity block",
    "purchase": "purchase",
}
RENTED_KINDS = {
    "vm": "virtual machine",
    "bare_metal": "bare-metal server",
    "marketplace": "offer on a marketplace",
    "serverless": "serverless",
    "capacity_block": "capacity block",
}
BOUGHT_KINDS = {
    "chip": "card or chip alone",
    "baseboard": "baseboard",
    "system": "complete computer",
    "server": "server",
    "rack": "rack",
}
KIND_NAMES = RENTED_KINDS | BOUGHT_KINDS
OWN_COLUMNS = (  # of a table, the required ones first
    *("provider", "instance", "accelerator", "accelerators", "term", "as_of", "source"),
    *("usd_per_hour", "purchase_usd", "listed_price", "currency", "region", "country", "kind", "confidence"),
    *("notes", "origin", "purchase_usd_min", "purchase_usd_max", "unit", "marks", "vcpus", "host_memory_gib"),
    *fixtures.SMALLEST_UNIT,
)
REQUIRED = OWN_COLUMNS[:7]
PRICED = ("term", "usd_per_hour", "purchase_usd")
Key = tuple[Any, ...]  # provider, instance, region, accelerator slug, term, date


def key_of(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in ("provider", "instance", "region", "accelerator", "term", "as_of"))


def usual_kind(chip: Accelerator, term: str, accelerators: int) -> str:
    """What is probably rented or bought, where nobody says."""
    if term != "purchase":
        return "capacity_block" if term == "capacity_block" else "vm"
    if accelerators > 1:
        return "rack" if accelerators > max(chip.chips_per_host, 8) else "server"
    return "system" if chip.kind in ("apple", "edge") or chip.chassis == "computer" else "chip"


@dataclass(frozen=True)
class Book:
    """What an organization's prices are read with: chips, exchange rates, known sellers and its stored prices."""

    owner: Organisation

    @cached_property
    def chips(self) -> dict[str, Accelerator]:
        columns = ("slug", "name", "kind", "chassis", "chips_per_host")
        return {chip.slug: chip for chip in Accelerator.objects.only(*columns).order_by("name")}

    @cached_property
    def rates(self) -> dict[str, ExchangeRate]:
        """The newest rate of each currency."""
        rows = ExchangeRate.objects.filter(as_of__lte=clock.today()).order_by("as_of")
        return {row.currency: row for row in rows}

    @cached_property
    def sellers(self) -> dict[str, str]:
        """Providers of public prices, by their name in lower case."""
        names = Price.objects.filter(organisation=None).order_by().values_list("provider", flat=True).distinct()
        return {name.lower(): name for name in sorted(names)}

    @cached_property
    def stored(self) -> dict[Key, Price]:
        rows = Price.objects.filter(organisation=self.owner).select_related("accelerator")
        return {(p.provider, p.instance, p.region, p.accelerator.slug, p.term, p.as_of): p for p in rows}

    @cached_property
    def before(self) -> dict[Key, list[Price]]:
        """The stored prices of each offer, oldest first."""
        found: dict[Key, list[Price]] = {}
        for key, price in sorted(self.stored.items(), key=lambda pair: pair[0][-1]):
            found.setdefault(key[:-1], []).append(price)
        return found

    @cached_property
    def market(self) -> price_checks.Market:
        return price_imports.market(clock.today())

    @cached_property
    def units(self) -> load.Units:
        """What is known about how many chips sellers sell together."""
        return load.known_units()

    @property
    def currencies(self) -> list[str]:
        return [USD, *sorted(set(self.rates) - {USD})]

    def seller(self, name: str) -> str:
        """The name as the public prices write it, where they have it."""
        return self.sellers.get(name.lower(), name)

    def slug_of(self, text: str) -> str:
        """The slug of an accelerator given by slug or name. ValidationError: there is none."""
        by_name = {chip.name.lower(): slug for slug, chip in self.chips.items()}
        slug = text if text in self.chips else by_name.get(text.lower(), text.lower())
        if slug in self.chips:
            return slug
        near = get_close_matches(text.lower(), [*self.chips, *by_name], n=3, cutoff=0.5)
        named = list(dict.fromkeys(by_name.get(each, each) for each in near))
        hint = f"Did you mean {' or '.join(named)}?" if named else "Use its name in the list of accelerators."
        raise forms.ValidationError(f"There is no accelerator {text[:80]!r}. {hint}")

    def usd(self, total: Decimal, currency: str, key: Key) -> Decimal:
        """USD at the newest rate; the stored figure where the same price was saved at an older rate."""
        if currency == USD:
            return total
        known = self.stored.get(key)
        if known and known.currency == currency and known.listed_price == total.quantize(Decimal("0.0001")):
            return known.usd_per_hour or known.purchase_usd or Decimal(0)
        return total / self.rates[currency].per_usd

    def suspicion(self, row: Row) -> str:
        """Why the row looks like a mistake; empty if it does not."""
        return price_checks.suspicion(row, self.market, clock.today())


# --- forms ------------------------------------------------------------------------------------------------------


class Money(NumberField):
    """An amount above zero."""

    message = "Enter a price above zero, such as 12.50, without a currency sign."

    def clean(self, value: Any) -> Any:
        amount = super().clean(value)
        if amount is not None and not 0 < amount < 10**10:
            raise forms.ValidationError(self.message)
        return amount


def choice(names: Mapping[str, str], label: str, blank: str = "", **rest: Any) -> forms.ChoiceField:
    wrong = {"invalid_choice": f"%(value)s is not known. Use one of {', '.join(names)}."}
    choices = [*([("", blank)] if blank else []), *names.items()]
    return forms.ChoiceField(label=label, choices=choices, required=not blank, error_messages=wrong, **rest)


def country_code(text: str) -> str:
    """The ISO code of a country. ValidationError: it cannot be one."""
    code = code_of(text) or text.upper()
    if text and not re.fullmatch("[A-Z]{2}", code):
        raise forms.ValidationError("Enter a country code of two letters, such as DE, or leave it empty.")
    return code


class Checked(forms.Form):
    """A form whose errors say what to do."""

    def __init__(self, *args: Any, book: Book, **kwargs: Any) -> None:
        self.book = book
        super().__init__(*args, **kwargs)
        if "confidence" in self.fields:
            self.fields["confidence"].required = False
        for each in self.fields.values():
            each.error_messages["required"] = "Fill this in."

    def clean_provider(self) -> str:
        return self.book.seller(self.cleaned_data["provider"])

    def clean_accelerator(self) -> str:
        given = str(self.cleaned_data["accelerator"])
        return self.book.slug_of(given) if given else ""

    def as_page(self, no_chip: str, *amounts: str) -> None:
        """Gives the fields the inputs of a page."""
        chips = [(slug, chip.name) for slug, chip in self.book.chips.items()]
        self.fields["accelerator"].widget = forms.Select(choices=[("", no_chip), *chips])
        self.fields["as_of"].widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        self.fields["as_of"].initial = clock.today
        self.fields["provider"].widget.attrs["list"] = "sellers"
        for name in amounts:
            self.fields[name].widget = forms.TextInput(attrs={"inputmode": "decimal"})

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(field, message) of each error; the field is empty for an error of the whole."""
        return [("" if name == "__all__" else name, str(each)) for name, found in self.errors.items() for each in found]


class Entry(Checked):
    """One price: what the page, a table and REST have in common. A valid form has `row`."""

    provider = forms.CharField(max_length=60)
    instance = forms.CharField(max_length=120)
    accelerator = forms.CharField(max_length=120)
    accelerators = forms.IntegerField(min_value=1, max_value=MAX_ACCELERATORS)
    term = choice(TERM_NAMES, "How it is paid")
    as_of = DayField()
    source = forms.CharField(max_length=MAX_TEXT)
    region = forms.CharField(required=False, max_length=60)
    country = forms.CharField(required=False, max_length=60)
    kind = choice(KIND_NAMES, "What you get", "Decide from the rest")
    confidence = choice({name: name for name in CONFIDENCES}, "Confidence", initial="high")
    notes = forms.CharField(required=False, max_length=MAX_TEXT)
    price_field = ""  # the field that an error of the price belongs to

    row: Row

    def clean_country(self) -> str:
        return country_code(str(self.cleaned_data["country"]))

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            self.complete(given)
        return given

    def complete(self, given: dict[str, Any]) -> None:
        kind = given["kind"] or usual_kind(self.book.chips[given["accelerator"]], given["term"], given["accelerators"])
        if kind not in (BOUGHT_KINDS if given["term"] == "purchase" else RENTED_KINDS):
            fitting = BOUGHT_KINDS if given["term"] == "purchase" else RENTED_KINDS
            self.add_error("kind", f"This does not fit how it is paid. Use one of {', '.join(fitting)}.")
        figures = self.figures(given, key_of(given))
        if self.errors:
            return
        names = ("provider", "instance", "accelerator", "region", "country", "term", "source", "notes")
        text = dict.fromkeys((*PRICE_COLUMNS, "origin"), "") | {name: given[name] for name in names}
        text |= {"accelerators": str(given["accelerators"]), "as_of": given["as_of"].isoformat(), "kind": kind}
        text |= {"confidence": given["confidence"] or "high", "origin": "quote", **figures}
        try:
            self.row = fixtures.price("", text)
        except FixtureError as error:
            self.add_error(self.price_field or None, sentence(error))
            return
        if load.lacks_unit(self.row, self.book.units):
            field = fixtures.SMALLEST_UNIT[0]
            self.add_error(
                field if field in self.fields else "instance", sentence(FixtureError(load.unit_missing(self.row)))
            )
            return
        self.refuse_a_change()

    def figures(self, given: Mapping[str, Any], key: Key) -> dict[str, str]:
        """The columns of the price, as text, and further columns of this kind of form. May add errors."""
        raise NotImplementedError

    def refuse_out_of_range(self, usd: Decimal, bought: bool, name: str) -> None:
        """Adds an error to the field `name` for a price that the catalog cannot hold."""
        most, least = (10**9, Decimal("0.01")) if bought else (10**6, Decimal("0.000001"))
        if usd >= most:
            self.add_error(name, f"Enter a price of less than {exact_text(most)}{'' if bought else ' per hour'}.")
        elif usd < least:
            self.add_error(name, f"Enter a price of at least {exact_text(least)}{'' if bought else ' per hour'}.")

    def refuse_a_change(self) -> None:
        """A saved price never changes: another price of the same offer needs another date."""
        known = self.book.stored.get(key_of(self.row))
        if known and any(getattr(known, name) != self.row[name] for name in load.FIGURES):
            saved = exact_text(known.usd_per_hour or known.purchase_usd or 0)
            self.add_error(
                self.price_field or None,
                f"You already saved {saved} for {known.accelerators} accelerators with this offer and date. "
                "A saved price is never changed: give the new one a newer date.",
            )


def sentence(error: Exception) -> str:
    """The message of a FixtureError without its place."""
    text = str(error).lstrip(": ")
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


class PriceForm(Entry):
    """The page for one price."""

    price = Money(label="Price")
    currency = forms.CharField(label="Currency", max_length=3, initial=USD)
    per = choice({"instance": "the whole instance", "chip": "each accelerator"}, "The price is for", initial="instance")
    low = Money(label="Lowest price", required=False, help_text="Of a purchase, if the quote has a range.")
    high = Money(label="Highest price", required=False)
    accept_unusual = forms.BooleanField(label="Save anyway", required=False)
    price_field = "price"
    field_order = (
        *("accelerator", "accelerators", "provider", "instance", "term", "price", "currency", "per", "low", "high"),
        *("as_of", "source", "confidence", "region", "country", "kind", "notes", "accept_unusual"),
    )
    texts = {
        "accelerator": ("Accelerator", ""),
        "accelerators": ("Accelerators in it", "In the whole instance or server, such as 8."),
        "provider": ("Provider or seller", "Who rents or sells it, such as aws."),
        "instance": ("Instance or server", "The name on the price list or in the quote."),
        "region": ("Region", "As the provider writes it. Leave it empty if the price holds everywhere."),
        "country": ("Country", "Two letters, such as DE. Leave it empty if the region says it."),
        "kind": ("What you get", "Leave it if you are not sure."),
        "as_of": ("Date of the price", "The day of the quote or price list."),
        "source": ("Source", "Where the price is from, such as quote 4711 of Acme."),
        "notes": ("Note", ""),
        "term": ("How it is paid", "Rent is per hour. A purchase is paid once."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.as_page("Choose one", "price", "low", "high")
        self.fields["currency"].widget = forms.Select(choices=[(name, name) for name in self.book.currencies])
        for name, (label, help_text) in self.texts.items():
            self.fields[name].label, self.fields[name].help_text = label, help_text

    def clean_currency(self) -> str:
        return known_currency(self.book, str(self.cleaned_data["currency"]))

    def figures(self, given: Mapping[str, Any], key: Key) -> dict[str, str]:
        times = given["accelerators"] if given["per"] == "chip" else 1
        bought, currency = given["term"] == "purchase", given["currency"]
        total = given["price"] * times
        usd = self.book.usd(total, currency, key)
        self.refuse_out_of_range(usd, bought, "price")
        found = {"purchase_usd" if bought else "usd_per_hour": f"{usd:f}", "currency": currency}
        if currency != USD:
            found["listed_price"] = f"{total:f}"
        for name, column in (("low", "purchase_usd_min"), ("high", "purchase_usd_max")):
            amount = given.get(name)
            if amount and not bought:
                self.add_error(name, "Only a purchase has a range. Leave this empty.")
            elif amount and (amount > given["price"] if name == "low" else amount < given["price"]):
                self.add_error(name, f"This must be {'at most' if name == 'low' else 'at least'} the price.")
            elif amount:
                found[column] = f"{usd * amount / given['price']:f}"
        return found


class RowForm(Entry):
    """One row of a table or of a REST call."""

    usd_per_hour = Money(required=False)
    purchase_usd = Money(required=False)
    listed_price = Money(required=False)
    currency = forms.CharField(required=False, max_length=3)
    purchase_usd_min = Money(required=False)
    purchase_usd_max = Money(required=False)
    origin = choice({name: name for name in ORIGINS if name != "index"}, "Origin", "quote")
    unit = choice({name: name for name in fixtures.UNITS_SOLD}, "Unit", "decide")
    marks = forms.CharField(required=False, max_length=60)
    vcpus = NumberField(required=False)
    host_memory_gib = NumberField(required=False)
    smallest_unit_accelerators = forms.CharField(required=False, max_length=10)
    smallest_unit_source = forms.CharField(required=False, max_length=MAX_TEXT)

    def clean_currency(self) -> str:
        return known_currency(self.book, str(self.cleaned_data["currency"]) or USD)

    def figures(self, given: Mapping[str, Any], key: Key) -> dict[str, str]:
        bought, currency, listed = given["term"] == "purchase", given["currency"], given["listed_price"]
        column, other = ("purchase_usd", "usd_per_hour") if bought else ("usd_per_hour", "purchase_usd")
        usd = given[column]
        if given[other]:
            self.add_error(other, f"Leave this empty: {TERM_NAMES[given['term']]} has its price in {column}.")
        if usd is None and listed is None:
            self.add_error(column, f"Give a price here in USD, or in listed_price with its currency ({USD}, EUR ...).")
        if usd is not None and listed is None and currency != USD:
            self.add_error("listed_price", f"Give the price in {currency} here and leave {column} empty.")
        if usd is not None and listed is not None and currency == USD and usd != listed:
            self.add_error("listed_price", f"This differs from {column}. Give one of them.")
        if self.errors:
            return {}
        given_in = column if usd is not None else "listed_price"
        usd = self.book.usd(listed, currency, key) if usd is None else usd
        self.refuse_out_of_range(usd, bought, given_in)
        names = ("purchase_usd_min", "purchase_usd_max", "unit", "marks", "vcpus", "host_memory_gib")
        found = {name: str(given[name]) for name in (*names, *fixtures.SMALLEST_UNIT) if given[name] not in (None, "")}
        found |= {column: f"{usd:f}", "currency": currency, "origin": given["origin"] or "quote"}
        return found | ({"listed_price": f"{listed:f}"} if currency != USD else {})


def known_currency(book: Book, text: str) -> str:
    """The code of USD or of a currency with an exchange rate. ValidationError: there is no rate."""
    code = text.upper()
    if code not in book.currencies:
        raise forms.ValidationError(
            f"There is no exchange rate for {code}. Give the price in one of {', '.join(book.currencies)}."
        )
    return code


class DiscountRow(Checked):
    """One discount. A valid form has `row`."""

    provider = forms.CharField(label="Provider", max_length=60, help_text="As its prices name it, such as aws.")
    accelerator = forms.CharField(label="Accelerator", required=False, max_length=120)
    term = choice(TERM_NAMES, "How it is paid", "every way")
    discount_fraction = NumberField(label="Discount")
    as_of = DayField(label="Date of the agreement")
    source = forms.CharField(label="Source", max_length=MAX_TEXT, help_text="Such as contract 12 of 2026.")
    row: Row

    def clean_discount_fraction(self) -> Decimal:
        fraction: Decimal = self.cleaned_data["discount_fraction"]
        if not Decimal("0.0001") <= fraction <= Decimal("0.9999"):
            raise forms.ValidationError("Enter a share between 0 and 1: 0.15 is a discount of 15%.")
        return fraction

    def fraction(self, given: Mapping[str, Any]) -> float:
        return float(given["discount_fraction"])

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            text = {name: given[name] for name in ("provider", "accelerator", "term", "source")}
            text |= {"discount_fraction": str(self.fraction(given)), "as_of": given["as_of"].isoformat()}
            self.row = fixtures.discount("", text)
            self.refuse_a_change()
        return given

    def refuse_a_change(self) -> None:
        row = self.row
        chip = {"accelerator__slug": row["accelerator"]} if row["accelerator"] else {"accelerator": None}
        names = ("provider", "term", "as_of")
        known = Discount.objects.filter(organisation=self.book.owner, **chip, **{name: row[name] for name in names})
        if any(each.discount_fraction != row["discount_fraction"] for each in known):
            self.add_error(None, "You already saved another discount like this with this date. Give it a newer date.")


class DiscountForm(DiscountRow):
    """The page for one discount, in percent."""

    discount_fraction = None  # type: ignore[assignment]
    discount_percent = NumberField(label="Discount, %", help_text="Off the list price, such as 15.")
    field_order = ("provider", "accelerator", "term", "discount_percent", "as_of", "source")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.as_page("all accelerators", "discount_percent")

    def clean_discount_percent(self) -> Decimal:
        percent: Decimal = self.cleaned_data["discount_percent"]
        if not Decimal("0.01") <= percent <= Decimal("99.99"):
            raise forms.ValidationError("Enter a number of percent between 0 and 100, such as 15.")
        return percent

    def fraction(self, given: Mapping[str, Any]) -> float:
        return float(given["discount_percent"] / 100)


# --- what a table would do --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row that can be read, beside what is stored. `why`: it looks like a mistake."""

    number: int  # of the line in the table, or of the row in the call
    row: Row
    sign: str  # + new | ~ newer price of a known offer | = stored already
    old: Price | None = None
    why: str = ""
    accept_unusual: bool = False

    @property
    def usd(self) -> Decimal:
        return usd_of(self.row)


@dataclass(kw_only=True, slots=True)
class Read:
    """A table or the rows of a call: the lines, and what is wrong as (line, field, message)."""

    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def held(self) -> list[Line]:
        return [line for line in self.lines if line.why]


def usd_of(row: Mapping[str, Any]) -> Decimal:
    return Decimal(row["purchase_usd"] if row["term"] == "purchase" else row["usd_per_hour"])


def examined(book: Book, number: int, row: Row, accept_unusual: bool = False) -> Line:
    """A row with what it changes and why it looks like a mistake."""
    if key_of(row) in book.stored:
        return Line(number=number, row=row, sign="=")
    older = [each for each in book.before.get(key_of(row)[:-1], ()) if each.as_of < row["as_of"]]
    return Line(
        number=number,
        row=row,
        sign="~" if older else "+",
        old=older[-1] if older else None,
        why=book.suspicion(row),
        accept_unusual=accept_unusual,
    )


def read(book: Book, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Read:
    """The rows of a table or a call, given as text by column; `accept_unusual` may be among the columns."""
    found, first = Read(), dict[Key, int]()
    for number, given in rows:
        form = RowForm(given, book=book)
        if not form.is_valid():
            found.wrong += [(number, name, message) for name, message in form.messages]
            continue
        key = key_of(form.row)
        if key in first:
            found.wrong.append((number, "", f"The same offer and date as in row {first[key]}. Keep one of them."))
            continue
        first[key] = number
        found.lines.append(examined(book, number, form.row, bool(given.get("accept_unusual"))))
    return found


def read_table(book: Book, text: str) -> Read:
    """A table with a header, as CSV or pasted from a spreadsheet."""
    text = text.removeprefix("\ufeff").strip("\r\n")
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    rows = read_csv(text, max_rows=MAX_LINES, delimiter=separator)
    try:
        lines = [(number, cells) for number, cells in rows if any(cell.strip() for cell in cells)]
    except BoundedError as error:
        return Read(wrong=[(1, "", f"This is not a table: it {error}.")])
    if not lines:
        return Read(wrong=[(1, "", "The table is empty. Give a line with column names, then one line per price.")])
    names = [cell.strip().lower().replace(" ", "_") for cell in lines[0][1]]
    if wrong := wrong_header(names):
        return Read(wrong=[(1, "", wrong)])
    if len(lines) - 1 > MAX_ROWS:
        return Read(wrong=[(1, "", f"The table has more than {MAX_ROWS:,} prices. Split it.")])
    message = f"This line has more cells than the header ({len(names)}). Put quotes around text with commas."
    long = [(number, "", message) for number, cells in lines[1:] if any(cell.strip() for cell in cells[len(names) :])]
    found = read(book, ((n, dict(zip(names, cells, strict=False))) for n, cells in lines[1:]))
    if len(lines) == 1:
        found.wrong.append((1, "", "There is no price under the column names. Add one line per price."))
    found.wrong = sorted(found.wrong + long)
    return found


def wrong_header(names: Sequence[str]) -> str:
    """What is wrong with the column names; empty if nothing is."""
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name or "(empty)" for name in names if name not in OWN_COLUMNS]
    twice = sorted({name for name in names if names.count(name) > 1})
    parts = [
        f"Columns are missing: {', '.join(missing)}." if missing else "",
        f"Unknown columns: {', '.join(unknown)}. Allowed are {', '.join(OWN_COLUMNS)}." if unknown else "",
        f"Columns are given twice: {', '.join(twice)}." if twice and not unknown else "",
    ]
    return " ".join(filter(None, parts))


# --- saving -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What was saved. `held`: the lines that wait for a decision, with their IDs."""

    created: int
    changed: int
    unchanged: int
    held: Sequence[tuple[Line, HeldPrice]]


def save(book: Book, lines: Sequence[Line], by: str, how: str, name: str) -> Saved:
    """Saves prices, all or none; those that look like a mistake wait, unless they were accepted.

    FixtureError: somebody saved the same price in this moment.
    """
    stored = [line for line in lines if line.sign == "="]
    fresh = [line for line in lines if line.sign != "="]
    waiting = [(line, held) for line in fresh if line.why and (held := held_already(book.owner, line.row))]
    known = {line.number for line, _ in waiting}
    try:
        with transaction.atomic():
            same = load.append_prices([line.row for line in stored], book.owner, by)
            given = [line for line in fresh if line.number not in known]
            done = load.Counts()
            if given:
                added = price_imports.add([line.row for line in given], how, name, by, book.owner)
                done = added.counts
                texts = [(line, price_imports.as_text(line.row)) for line in given]
                waiting += [next((line, held) for line, text in texts if text == held.row) for held in added.held]
            accepted = [held for line, held in waiting if line.accept_unusual]
            for held in accepted:
                price_imports.release(held.pk, by)
            if done.created:
                audit.record(book.owner, by, audit.Action.PRICES, name, f"{done.created} added")
    except IntegrityError as error:
        raise FixtureError("somebody saved the same price at the same moment; send yours again") from error
    return Saved(
        created=done.created + len(accepted),
        changed=same.changed + done.changed,
        unchanged=same.unchanged + done.unchanged,
        held=sorted(((line, held) for line, held in waiting if not line.accept_unusual), key=lambda e: e[0].number),
    )


def waiting_of(owner: Organisation) -> list[HeldPrice]:
    """The organization's prices that wait for a decision, oldest first."""
    rows = HeldPrice.objects.filter(state=HeldPrice.State.HELD, price_import__organisation=owner)
    return list(rows.select_related("price_import"))


def held_already(owner: Organisation, row: Row) -> HeldPrice | None:
    text = price_imports.as_text(row)
    return next((held for held in waiting_of(owner) if held.row == text), None)


def decide(owner: Organisation, pk: int, release: bool, by: str) -> None:
    """Saves or drops a price that waits. NotHeld or FixtureError: it cannot be."""
    if not HeldPrice.objects.filter(pk=pk, price_import__organisation=owner).exists():
        raise price_imports.NotHeld("This price does not wait any more.")
    (price_imports.release if release else price_imports.discard)(pk, by)


def save_discounts(book: Book, rows: Sequence[Row], by: str) -> load.Counts:
    """Saves discounts, all or none. FixtureError: two of them contradict each other, or a stored one."""
    try:
        with transaction.atomic():
            counts = load.append_discounts(rows, book.owner, by)
            if counts.created:
                what = ", ".join(sorted({row["provider"] for row in rows}))
                audit.record(book.owner, by, audit.Action.DISCOUNTS, what, f"{counts.created} added")
    except IntegrityError as error:
        raise FixtureError("somebody saved the same discount at the same moment; send yours again") from error
    log.info("discounts added", by=by, created=counts.created)
    return counts


def price_text(price: Any) -> str:
    """The price of a stored row or of a form's row in words: $16.00 per hour."""
    row = {name: getattr(price, name) for name in PRICED} if isinstance(price, Price) else price
    return f"{exact_text(usd_of(row))}{'' if row['term'] == 'purchase' else ' per hour'}"
