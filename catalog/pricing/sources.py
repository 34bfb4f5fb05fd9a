"""The public sources that `prices sync` can read, and how each is downloaded."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import requests

from catalog.importers.prices import (
    Account,
    Offer,
    aws,
    azure,
    gcp,
    gpu_price_index,
    gpuhunt,
    hosted,
    lambda_cloud,
    litellm,
    names,
    openrouter,
    skypilot,
)
from catalog.loading.fixtures import INDEX, FixtureError
from catalog.models import Accelerator, ApiPrice, Price, ServedModel
from catalog.pricing.download import Unreachable, get

Etags = dict[str, str]  # by URL
AZURE = "https://prices.azure.com/api/retail/prices?api-version=2023-01-01-preview&$filter="
AWS = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{}/index.json"
GCP = "https://cloudbilling.googleapis.com/v1/services/{}/skus?currencyCode=USD&pageSize=5000"
GCP_SERVICES = ("6F81-5844-456A", "E000-3F24-B8AA")  # Compute Engine; Cloud TPU, which has TPU v2 to v4 only
CLOUDS = ("aws", "azure", "gcp", "crusoe", "digitalocean", "nebius", "runpod", "vultr")  # also without a price yet
SKYPILOT = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/{}/vms.csv"
LAMBDA = "https://cloud.lambda.ai/api/v1/instance-types"
LITELLM = "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"
OPENROUTER = "https://openrouter.ai/api/v1/models"
DAILY = "https://raw.githubusercontent.com/ewyluda/gpu-price-index/main/site/data/observations-latest.csv"
MAX_PAGES = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """What was read: texts by name (a provider, a region or a size); empty if nothing has changed."""

    texts: Mapping[str, str]
    etags: Etags = field(default_factory=dict)
    as_of: str = ""  # ISO date of the data; empty: they are of today
    dated_by: str = ""  # what states this date


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One public source. `download` raises Unreachable, `rows` FixtureError."""

    name: str
    title: str
    download: Callable[[requests.Session, Etags], Download]
    rows: Callable[[str, str, str, Account], Iterable[Offer]]  # of one text: (its name, text, date, account)
    address: str = ""  # of its file or API, for people who download it elsewhere
    hosted: bool = False  # rows of fixtures.api_price instead of fixtures.price
    by_cloud: bool = False  # a text is of one cloud, which its name tells and its content does not
    keeps_withdrawn: bool = False  # lists offers for ever, so being listed says nothing
    newest: Callable[[str], str] = lambda text: ""  # the newest day that a text states; empty: none
    needs: str = ""  # what it needs besides the network


def _names(variable: str, default: str) -> list[str]:
    return [name.strip() for name in os.environ.get(variable, default).split(",") if name.strip()]


def _each(urls: Mapping[str, str], opened: requests.Session, etags: Etags) -> Download:
    """One document per name, left out if it has not changed."""
    texts, new = {}, {}
    for name, url in urls.items():
        page = get(opened, url, etags.get(url, ""))
        if page.text is not None:
            texts[name] = page.text
        if page.etag:
            new[url] = page.etag
    return Download(texts=texts, etags=new)


def _azure(opened: requests.Session, etags: Etags) -> Download:
    wanted = f"serviceName eq 'Virtual Machines' and startswith(armSkuName, '{azure.ACCELERATED}')"
    texts: dict[str, str] = {}
    url: str | None = AZURE + quote(wanted)
    while url and len(texts) < MAX_PAGES:
        text = get(opened, url).text or ""
        texts[f"page {len(texts)}"] = text
        url = azure.next_page(text)
    return Download(texts=texts)


def _gcp(opened: requests.Session, etags: Etags) -> Download:
    key = os.environ.get("ASSAY_GCP_BILLING_KEY", "")
    if not key:
        raise Unreachable("gcp needs an API key with access to the Cloud Billing API: set ASSAY_GCP_BILLING_KEY")
    pages: list[str] = []
    for service in GCP_SERVICES:
        token: str | None = ""
        while token is not None and len(pages) < MAX_PAGES:
            url = GCP.format(service) + (f"&pageToken={quote(token)}" if token else "")
            pages.append(get(opened, url, secret={"X-Goog-Api-Key": key}).text or "")
            token = gcp.next_page(pages[-1])
    return Download(texts={"skus": gcp.merged(pages)})


def _lambda(opened: requests.Session, etags: Etags) -> Download:
    key = os.environ.get("ASSAY_LAMBDA_KEY", "")
    if not key:
        raise Unreachable("lambda needs an API key of Lambda Cloud: set ASSAY_LAMBDA_KEY")
    return Download(texts={"types": get(opened, LAMBDA, secret={"Authorization": f"Bearer {key}"}).text or ""})


def _aws(opened: requests.Session, etags: Etags) -> Download:
    return _each({name: AWS.format(name) for name in _names("ASSAY_AWS_REGIONS", "us-east-1")}, opened, etags)


def _aws_spot(opened: requests.Session, etags: Etags) -> Download:
    """Through boto3, which finds the credentials in the environment."""
    try:
        import boto3  # optional
    except ImportError as error:
        raise Unreachable(
            "aws-spot needs the package boto3 and AWS credentials; without them, save the output of "
            "`aws ec2 describe-spot-price-history --output json` and give it with --file"
        ) from error
    texts = {}
    for region in _names("ASSAY_AWS_REGIONS", "us-east-1"):
        try:
            pages = boto3.client("ec2", region_name=region).get_paginator("describe_spot_price_history")
            asked = {
                "InstanceTypes": sorted({**aws.INSTANCES, **known("aws").instances}),
                "ProductDescriptions": ["Linux/UNIX"],
            }
            found = [item for page in pages.paginate(**asked) for item in page["SpotPriceHistory"]]
        except Exception as error:  # boto3 makes its exception classes at run time
            raise Unreachable(
                f"EC2 in {region} did not answer ({type(error).__name__}); nothing was changed"
            ) from error
        texts[region] = json.dumps({"SpotPriceHistory": found}, default=str)
    return Download(texts=texts)


def _skypilot(opened: requests.Session, etags: Etags) -> Download:
    clouds = _names("ASSAY_SKYPILOT_CLOUDS", "aws,gcp,oci,lambda,nebius,runpod,cudo")
    return _each({cloud: SKYPILOT.format(cloud) for cloud in clouds}, opened, etags)


def _gpuhunt(opened: requests.Session, etags: Etags) -> Download:
    return Download(texts=dict.fromkeys(_names("ASSAY_GPUHUNT_PROVIDERS", "crusoe,digitalocean,vultr"), ""))


def _one(url: str) -> Callable[[requests.Session, Etags], Download]:
    return lambda opened, etags: _each({url.rsplit("/", 1)[-1]: url}, opened, etags)


def _by_path(read: Callable[[Path], Iterable[Offer]], folder: str, name: str, text: str) -> Iterator[Offer]:
    """For readers of files, which take the provider from the folder."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / folder / name
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        yield from read(path)


def _skypilot_rows(cloud: str, text: str, as_of: str, account: Account) -> Iterator[Offer]:
    return _by_path(lambda path: skypilot.read(path, cloud, known(), as_of, account), cloud, "vms.csv", text)


def _gpuhunt_rows(provider: str, text: str, as_of: str, account: Account) -> Iterator[Offer]:
    seller = names.provider(provider, known_providers()) or provider
    if not text:
        return gpuhunt.live(provider, known(), as_of, account)
    return _by_path(lambda path: gpuhunt.read(path, seller, known(), as_of, account), seller, f"{seller}.csv", text)


def known(provider: str = "") -> names.Catalog:
    """The catalog's chips, and what each instance of a provider has by the newest public price of it."""
    rows = Price.objects.filter(organisation=None, provider=provider, unit="instance").exclude(origin=INDEX)
    listed = rows.order_by("as_of").values_list("instance", "accelerator__slug", "accelerators")
    return names.Catalog(
        gib=dict(Accelerator.objects.values_list("slug", "memory_gib")),
        instances={instance: (slug, count) for instance, slug, count in listed} if provider else {},
    )


def models() -> hosted.Models:
    """The names of the catalog's models and hosted endpoints."""
    endpoints = ApiPrice.objects.values_list("provider", "name", "model__slug").distinct()
    return hosted.models(ServedModel.objects.values_list("hf_id", "slug"), endpoints)


def known_providers() -> set[str]:
    """The sellers of the catalog, and the clouds that the collections list."""
    stored = Price.objects.filter(organisation=None).values_list("provider", flat=True).distinct()
    return {*stored, *names.PROVIDERS.values(), *CLOUDS}


def cloud_of(file: Path, cloud: str = "") -> str:
    """The provider that a file of one cloud belongs to: as said, or by the name of the file or of its folder.

    FixtureError: no provider of the catalog has this name, or nothing names one.
    """
    providers = known_providers()
    if cloud:
        if found := names.provider(cloud, providers):
            return found
        raise FixtureError(f"no cloud {cloud!r} in the catalog; choose one of {', '.join(sorted(providers))}")
    folder = file.resolve().parent.name
    for word in (file.stem, *re.split(r"[_ .]+", file.stem), folder):
        if found := names.provider(word, providers):
            return found
    raise FixtureError(f"{file} does not say which cloud it is of; give --cloud NAME, such as --cloud nebius")


def _rankings(opened: requests.Session, etags: Etags) -> Download:
    if not (url := os.environ.get("ASSAY_RANKINGS_URL", "")):
        raise Unreachable(
            "the rankings of OpenRouter have no public address: set ASSAY_RANKINGS_URL to a JSON list of their rows, "
            "or give such a file with --file"
        )
    return _each({"rankings": url}, opened, etags)


def _litellm_rows(name: str, text: str, as_of: str, account: Account) -> Iterator[Offer]:
    return _by_path(lambda path: litellm.read(path, models(), as_of, account), "litellm", f"{name}.json", text)


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="azure",
            title="Azure Retail Prices API",
            address=AZURE.partition("?")[0],
            download=_azure,
            rows=lambda name, text, as_of, account: azure.read(text, known("azure"), as_of, account),
            newest=azure.newest,
        ),
        Source(
            name="aws",
            title="AWS Price List, EC2 (regions in ASSAY_AWS_REGIONS)",
            address=AWS.format("REGION"),
            download=_aws,
            rows=lambda name, text, as_of, account: aws.read(text, known("aws"), as_of, account),
            needs="about 3 GiB of memory: AWS publishes one large file per region",
        ),
        Source(
            name="aws-spot",
            title="EC2 spot price history (regions in ASSAY_AWS_REGIONS)",
            download=_aws_spot,
            rows=lambda name, text, as_of, account: aws.read_spot(text, known("aws"), as_of, account),
            needs="the package boto3 and AWS credentials",
        ),
        Source(
            name="gcp",
            title="Google Cloud Billing Catalog API",
            address=GCP.partition("?")[0],
            download=_gcp,
            rows=lambda name, text, as_of, account: gcp.read(text, known("gcp"), as_of, account),
            needs="an API key in ASSAY_GCP_BILLING_KEY",
        ),
        Source(
            name="gpuhunt",
            title="gpuhunt (providers in ASSAY_GPUHUNT_PROVIDERS)",
            download=_gpuhunt,
            rows=_gpuhunt_rows,
            by_cloud=True,
            needs="the package gpuhunt",
        ),
        Source(
            name="skypilot",
            title="SkyPilot catalog (clouds in ASSAY_SKYPILOT_CLOUDS)",
            address=SKYPILOT.format("CLOUD"),
            download=_skypilot,
            rows=_skypilot_rows,
            by_cloud=True,
        ),
        Source(
            name="gpu-price-index",
            title="Daily readings of provider APIs and pages (ewyluda/gpu-price-index)",
            address=DAILY,
            download=_one(DAILY),
            rows=lambda name, text, as_of, account: gpu_price_index.read(text, known(), as_of, account),
        ),
        Source(
            name="lambda",
            title="Lambda Cloud API",
            address=LAMBDA,
            download=_lambda,
            rows=lambda name, text, as_of, account: lambda_cloud.read(text, known("lambda"), as_of, account),
            needs="an API key in ASSAY_LAMBDA_KEY",
        ),
        Source(
            name="litellm",
            title="litellm model prices",
            address=LITELLM,
            download=_one(LITELLM),
            rows=_litellm_rows,
            hosted=True,
            keeps_withdrawn=True,
        ),
        Source(
            name="openrouter",
            title="OpenRouter model list",
            address=OPENROUTER,
            download=_one(OPENROUTER),
            rows=lambda name, text, as_of, account: openrouter.read(text, models(), as_of, account),
            newest=openrouter.newest,
            hosted=True,
        ),
        Source(
            name="openrouter-rankings",
            title="Tokens by model on OpenRouter (weighs what the catalog lacks; no prices)",
            download=_rankings,
            rows=lambda name, text, as_of, account: openrouter.usage(text, models(), account),
            hosted=True,
            needs="a file, or its address in ASSAY_RANKINGS_URL",
        ),
    )
}


def named(name: str) -> Source:
    """The source of this name. FixtureError: there is none."""
    if name not in SOURCES:
        raise FixtureError(f"no price source {name!r}; choose one of {', '.join(SOURCES)}")
    return SOURCES[name]
