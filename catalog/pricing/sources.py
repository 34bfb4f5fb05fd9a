"""The public sources that `prices sync` can read, and how each is downloaded."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import requests

from catalog.importers.prices import aws, azure, gcp, gpu_price_index, gpuhunt, litellm, openrouter, skypilot
from catalog.loading.fixtures import FixtureError, Row
from catalog.models import ServedModel
from catalog.pricing.download import Unreachable, get

Skipped = dict[str, int]
Etags = dict[str, str]  # by URL
AZURE = "https://prices.azure.com/api/retail/prices?api-version=2023-01-01-preview&$filter="
AWS = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{}/index.json"
GCP = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus?currencyCode=USD&pageSize=5000"
SKYPILOT = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/{}/vms.csv"
LITELLM = "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"
OPENROUTER = "https://openrouter.ai/api/v1/models"
DAILY = "https://raw.githubusercontent.com/ewyluda/gpu-price-index/main/site/data/observations-latest.csv"
MAX_PAGES = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """What was read: texts by name (a provider, a region or a size); empty if nothing has changed."""

    texts: Mapping[str, str]
    etags: Etags = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One public source. `download` raises Unreachable, `rows` FixtureError."""

    name: str
    title: str
    download: Callable[[requests.Session, Etags], Download]
    rows: Callable[[str, str, str, Skipped], Iterable[Row]]  # of one text: (its name, text, date, skipped)
    hosted: bool = False  # rows of fixtures.api_price instead of fixtures.price
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
    texts = {}
    for size in azure.INSTANCES:
        url: str | None = AZURE + quote(f"serviceName eq 'Virtual Machines' and armSkuName eq '{size}'")
        count = 0
        while url and count < MAX_PAGES:
            text = get(opened, url).text or ""
            texts[f"{size} {count}"] = text
            url, count = azure.next_page(text), count + 1
    return Download(texts=texts)


def _gcp(opened: requests.Session, etags: Etags) -> Download:
    key = os.environ.get("ASSAY_GCP_BILLING_KEY", "")
    if not key:
        raise Unreachable("gcp needs an API key with access to the Cloud Billing API: set ASSAY_GCP_BILLING_KEY")
    pages: list[str] = []
    token: str | None = ""
    while token is not None and len(pages) < MAX_PAGES:
        url = f"{GCP}&pageToken={quote(token)}" if token else GCP
        pages.append(get(opened, url, secret={"X-Goog-Api-Key": key}).text or "")
        token = gcp.next_page(pages[-1])
    return Download(texts={"skus": gcp.merged(pages)})


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
    import json

    texts = {}
    for region in _names("ASSAY_AWS_REGIONS", "us-east-1"):
        try:
            pages = boto3.client("ec2", region_name=region).get_paginator("describe_spot_price_history")
            asked = {"InstanceTypes": sorted(aws.INSTANCES), "ProductDescriptions": ["Linux/UNIX"]}
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


def _by_path(read: Callable[[Path], Iterable[Row]], folder: str, name: str, text: str) -> Iterator[Row]:
    """For readers of files, which take the provider from the folder."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / folder / name
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        yield from read(path)


def _skypilot_rows(cloud: str, text: str, as_of: str, skipped: Skipped) -> Iterator[Row]:
    return _by_path(lambda path: skypilot.read(path, cloud, as_of, skipped), cloud, "vms.csv", text)


def _gpuhunt_rows(provider: str, text: str, as_of: str, skipped: Skipped) -> Iterator[Row]:
    if not text:
        return gpuhunt.live(provider, as_of, skipped)
    return _by_path(lambda path: gpuhunt.read(path, provider, as_of, skipped), provider, "offers.csv", text)


def _models() -> list[tuple[str, str]]:
    return list(ServedModel.objects.values_list("hf_id", "slug"))


def _litellm_rows(name: str, text: str, as_of: str, skipped: Skipped) -> Iterator[Row]:
    return _by_path(lambda path: litellm.read(path, _models(), as_of, skipped), "litellm", "prices.json", text)


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="azure",
            title="Azure Retail Prices API",
            download=_azure,
            rows=lambda name, text, as_of, skipped: azure.read(text, as_of, skipped),
        ),
        Source(
            name="aws",
            title="AWS Price List, EC2 (regions in ASSAY_AWS_REGIONS)",
            download=_aws,
            rows=lambda name, text, as_of, skipped: aws.read(text, as_of, skipped),
            needs="about 3 GiB of memory: AWS publishes one large file per region",
        ),
        Source(
            name="aws-spot",
            title="EC2 spot price history (regions in ASSAY_AWS_REGIONS)",
            download=_aws_spot,
            rows=lambda name, text, as_of, skipped: aws.read_spot(text, as_of, skipped),
            needs="the package boto3 and AWS credentials",
        ),
        Source(
            name="gcp",
            title="Google Cloud Billing Catalog API",
            download=_gcp,
            rows=lambda name, text, as_of, skipped: gcp.read(text, as_of, skipped),
            needs="an API key in ASSAY_GCP_BILLING_KEY",
        ),
        Source(
            name="gpuhunt",
            title="gpuhunt (providers in ASSAY_GPUHUNT_PROVIDERS)",
            download=_gpuhunt,
            rows=_gpuhunt_rows,
            needs="the package gpuhunt",
        ),
        Source(
            name="skypilot",
            title="SkyPilot catalog (clouds in ASSAY_SKYPILOT_CLOUDS)",
            download=_skypilot,
            rows=_skypilot_rows,
        ),
        Source(
            name="gpu-price-index",
            title="Daily readings of provider APIs and pages (ewyluda/gpu-price-index)",
            download=_one(DAILY),
            rows=lambda name, text, as_of, skipped: gpu_price_index.read(text, as_of, skipped),
        ),
        Source(name="litellm", title="litellm model prices", download=_one(LITELLM), rows=_litellm_rows, hosted=True),
        Source(
            name="openrouter",
            title="OpenRouter model list",
            download=_one(OPENROUTER),
            rows=lambda name, text, as_of, skipped: openrouter.read(text, _models(), as_of, skipped),
            hosted=True,
        ),
    )
}


def named(name: str) -> Source:
    """The source of this name. FixtureError: there is none."""
    if name not in SOURCES:
        raise FixtureError(f"no price source {name!r}; choose one of {', '.join(SOURCES)}")
    return SOURCES[name]
