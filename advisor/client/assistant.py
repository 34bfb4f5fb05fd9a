"""Assay's tools for AI assistants (Model Context Protocol), over the REST API: what a token may not do, they cannot.

Every answer is JSON of at most MOST_BYTES with links to what was left out. Needs the extra `mcp`.
"""

import asyncio
import functools
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from .calls import AssayError, AsyncAssay

MOST_BYTES = 2000
SHORTER = (  # characters of a text, items of a list
    *(
        (1500, 40),
        (800, 30),
        (400, 20),
        (300, 20),
        (240, 12),
        (200, 12),
        (200, 8),
        (160, 8),
        (160, 5),
        (120, 5),
        (120, 3),
        (100, 3),
        (80, 3),
    ),
    *((60, 3), (60, 2), (40, 2), (20, 2), (20, 1), (8, 1)),
)
MOST_WAIT_S = 50.0  # of one call: assistants give up after a minute
INSTRUCTIONS = (
    "Assay says which accelerators to rent or buy for an AI workload, how to run the model on them, and what it costs. "
    "Look up names with search_catalog. For a decision call advise; if it is not finished, call get_answer. "
    "Figures are estimates with the stated basis and date: quote both, and give the user the link to the page."
)
Json = dict[str, Any]
Tool = Callable[..., Awaitable[Any]]
Id = Annotated[str, Field(pattern="^[0-9a-fA-F-]{36}$", description="ID of an answer, as advise returns it")]


class Workload(BaseModel, extra="allow"):
    """The workload as in a workload file; further keys are allowed. A refusal names the key that is wrong."""

    model: str = Field(description="Model in the catalog, such as meta-llama/Llama-3.3-70B-Instruct")
    name: str = Field("question", description="Name of the question")
    kind: str = Field("serving", description="serving, batch, embedding, rerank, training or finetuning")
    traffic: Json | None = Field(
        None,
        description="{input_tokens: {mean: 2000, p95: 6000}, output_tokens: {mean: 300, p95: 800}, "
        "requests_per_s: {mean: 4, peak: 12}}",
    )
    slo: Json | None = Field(None, description="Latency limits: {ttft_ms_p95: 1000, tpot_ms_p95: 40}")
    constraints: Json | None = Field(
        None, description="{accelerators: {allow: [h100-sxm]}, regions: {allow: [eu]}, max_usd_per_month: 40000}"
    )


def cut(value: Any, characters: int, items: int, depth: int = 5) -> Any:
    """The value with shorter texts, lists and objects, and figures of four digits."""
    if isinstance(value, dict) and depth:
        kept = list(value.items())[: 4 * items]
        return {str(key)[:40]: cut(each, characters, items, depth - 1) for key, each in kept if each not in (None, "")}
    if isinstance(value, list | tuple) and depth:
        more = [f"and {len(value) - items} more"] if len(value) > items else []
        return [cut(each, characters, items, depth - 1) for each in value[:items]] + more
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if value is None or isinstance(value, bool | int) and abs(value) < 2**63:
        return value
    text = str(value)
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def within_limit(found: Json, links: Json) -> str:
    """JSON of what was found and the links, in at most MOST_BYTES. Links are never shortened."""
    for characters, items in SHORTER:
        text = json.dumps({**cut(found, characters, items), "links": links}, ensure_ascii=False, separators=(",", ":"))
        text = text.encode(errors="replace").decode()
        if len(text.encode()) <= MOST_BYTES:
            return text
    return json.dumps({"said": "Too long to show here; open a link.", "links": links})


def tool(method: Tool) -> Tool:
    """The tool, with a refusal as an error that the assistant can read."""

    @functools.wraps(method)
    async def answered(*args: Any, **named: Any) -> Any:
        try:
            return await method(*args, **named)
        except (AssayError, ValueError) as error:
            text = str(error).encode()[:MOST_BYTES].decode(errors="ignore")
            raise ToolError(text) from None

    return answered


def client_of(ctx: Context[Any, Any]) -> AsyncAssay:
    """A client with the token of the caller; over stdio, whose caller is this user, with that in ASSAY_TOKEN."""
    request = ctx.request_context.request
    if request is None:
        return AsyncAssay(tries=3)
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return AsyncAssay(token=token.strip() if kind.lower() == "bearer" else "", tries=3)


def links_of(assay: AsyncAssay, advice_id: str) -> Json:
    page = f"{assay.url}/advice/{advice_id}"
    return {"page": page, "json": f"{assay.url}/api/v1/advice/{advice_id}/result"}


async def decision_of(assay: AsyncAssay, advice_id: str, wait_s: float) -> str:
    """The decision, or how far it is."""
    links = links_of(assay, advice_id)
    end = time.monotonic() + wait_s
    while True:
        advice = await assay.get(f"advice/{advice_id}", wait=max(0, min(30, int(end - time.monotonic()))))
        if advice["state"] not in ("queued", "running") or time.monotonic() > end:
            break
        await asyncio.sleep(1.0)
    if advice["state"] in ("queued", "running"):
        said = {"id": advice_id, "state": advice["state"], "said": "Not finished: call get_answer again in a minute."}
        return within_limit(said, links)
    if advice["state"] != "done":
        raise AssayError(f"The answer is {advice['state']}. {advice['error']}".strip())
    [summary] = await assay.compare(advice_id)
    option = (
        "label",
        "accelerator",
        "provider",
        "region",
        "acquisition",
        "ttft_ms_p95",
        "tpot_ms_p95",
        "usd_per_run",
        "days",
    )
    told = {key: summary.get(key) for key in ("id", "name", "action", "said", "cost")}
    told["check_first"] = (summary.get("gate") or {}).get("said")
    told |= {key: picked(summary.get(key), option) for key in ("first", "runner_up")}
    told["facts"] = [f"{each['label']}: {each['text']}" for each in summary.get("facts") or ()]
    told |= {key: summary.get(key) for key in ("option_count", "best_probability", "prices_as_of")}
    return within_limit({key: each for key, each in told.items() if each}, links)


def picked(row: Json | None, keys: tuple[str, ...]) -> Json:
    return {key: row[key] for key in keys if key in row} if row else {}


# --- the tools --------------------------------------------------------------------------------------------------


@tool
async def search_catalog(
    ctx: Context[Any, Any],
    kind: Literal["accelerators", "models", "frameworks", "prices", "api-prices", "regions"],
    text: Annotated[str, Field(description="Words that must occur, such as H100 or llama 70b")] = "",
    limit: Annotated[int, Field(ge=1, le=20)] = 5,
) -> str:
    """Find accelerators, models, frameworks, prices (lowest first) or regions, with the names that other tools take."""
    async with client_of(ctx) as assay:
        cheapest = {"sort": "usd_per_chip_hour"} if kind == "prices" else {}
        found = await assay.search(kind, text[:200], limit=limit, **cheapest)
        first = ("slug", "name", "hf_id", "accelerator", "provider", "usd_per_chip_hour", "as_of", "instance", "region")
        rows = [picked(row, first) | row for row in found]
        dull = re.compile("id|is_own|notes|converted.*|.*_month|source")
        rows = [
            {key: each for key, each in row.items() if not (isinstance(each, dict | list) or dull.fullmatch(key))}
            for row in rows
        ]
        page = f"{assay.url}/catalog/{kind}?search={quote(text[:80])}"
        return within_limit({"results": rows}, {"page": page})


@tool
async def estimate(
    ctx: Context[Any, Any],
    model: Annotated[str, Field(description="Model in the catalog")],
    accelerator: Annotated[str, Field(description="Slug of an accelerator, such as h100-sxm")],
    weights: Annotated[str, Field(description="Format of the weights, such as bf16, fp8 or awq")],
    input_tokens: Annotated[int, Field(ge=1, description="Per request")],
    output_tokens: Annotated[int, Field(ge=1, description="Per request")],
    concurrency: Annotated[int | None, Field(ge=1, description="Running requests; default: as many as fit")] = None,
    tp: Annotated[int, Field(ge=1, description="Tensor-parallel size")] = 1,
    framework: Annotated[str, Field(description="Serving framework, such as vllm")] = "",
) -> str:
    """Latency, throughput, memory and cost of one fixed deployment. Nothing is searched."""
    asked: Json = {"model": model, "accelerator": accelerator, "weights": weights, "tp": tp, "isl": input_tokens}
    asked |= {"osl": output_tokens, "concurrency": concurrency or "max"} | (
        {"framework": framework} if framework else {}
    )
    async with client_of(ctx) as assay:
        found = await assay.estimate(**asked)
        keys = (
            *("label", "fits", "smallest_change", "ttft_ms", "tpot_ms", "output_tokens_per_s", "requests_per_s"),
            *("concurrency", "memory", "usd_per_hour", "usd_per_mtok_output", "interval", "bound", "basis", "warnings"),
        )
        links = {"accelerator": f"{assay.url}/catalog/accelerators/{quote(accelerator[:80])}"}
        return within_limit({key: found[key] for key in keys if key in found}, links)


@tool
async def rank_quickly(ctx: Context[Any, Any], workload: Workload) -> str:
    """Rank the catalog at once by closed formulas. Rough: call advise before a decision."""
    async with client_of(ctx) as assay:
        found = await assay.quick(workload.model_dump(exclude_none=True))
        rows = [picked(row, ("rank", "label", "usd_per_month", "ttft_ms", "tpot_ms")) for row in found["options"]]
        marks = sorted({row["mark"] for row in found["options"] if row.get("mark")})
        return within_limit({"basis": marks, "options": rows}, {"page": f"{assay.url}/"})


@tool
async def advise(
    ctx: Context[Any, Any],
    workload: Workload,
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S, description="How long to wait for the answer")] = 30,
) -> str:
    """Ask which accelerators to rent or buy for a workload: the decision, its cost and what would change it."""
    async with client_of(ctx) as assay:
        queued = await assay.advise(workload.model_dump(exclude_none=True), wait=False)
        return await decision_of(assay, queued["id"], wait_s)


@tool
async def get_answer(ctx: Context[Any, Any], advice_id: Id, wait_s: Annotated[float, Field(ge=0, le=50)] = 20) -> str:
    """The decision of an answer, or how far it is."""
    async with client_of(ctx) as assay:
        return await decision_of(assay, advice_id, wait_s)


@tool
async def list_answers(
    ctx: Context[Any, Any],
    name: Annotated[str, Field(description="Part of the workload's name")] = "",
    limit: Annotated[int, Field(ge=1, le=20)] = 10,
) -> str:
    """The organization's answers, newest first, with their IDs."""
    async with client_of(ctx) as assay:
        rows = (await assay.get("advice", limit=limit, **({"name": name[:200]} if name else {})))["results"]
        keys = ("id", "name", "state", "created_at", "made_by")
        return within_limit(
            {"answers": [{key: row[key] for key in keys} for row in rows]}, {"page": f"{assay.url}/advice"}
        )


@tool
async def explain(
    ctx: Context[Any, Any],
    advice_id: Id,
    about: Literal["verdict", "option", "rejected", "sensitivity", "assumptions"],
    name: Annotated[str, Field(description="Rank of an option, or part of an accelerator's or assumption's name")] = "",
) -> str:
    """Why an answer is as it is: the verdict, an option, why not an accelerator (rejected), what changes the choice."""
    async with client_of(ctx) as assay:
        answer = await assay.answer(advice_id, include="options,assumptions", timeout_s=20.0)
        result, links = answer.result, links_of(assay, advice_id)
        if about == "verdict":
            return within_limit({"verdict": result["verdict"], "views": result["views"]}, links)
        if about == "option":
            rank = int(name) if name.isdecimal() else 1
            row = next((row for row in answer.rows if row.get("rank") == rank), None)
            if row is None:
                raise AssayError(f"There is no option {rank}; there are {len(answer.rows)}.")
            keys = ("rank", "label", "usd_per_month", "ttft_ms", "tpot_ms", "bound", "basis", "warnings", "reasons")
            links["option"] = f"{links['page']}/options/{rank}"
            interval = picked(row.get("interval"), ("usd_per_month", "ttft_ms_p95", "tpot_ms_p95"))
            return within_limit({**picked(row, keys[:7]), "interval_90": interval, **picked(row, keys[7:])}, links)
        rows = [row for row in result.get(about, []) if is_about(row, name)]
        found = {"count": len(rows), about: rows}
        if about == "rejected" and name:  # it may be among the options
            ranked = [row for row in answer.rows if is_about(row, name)]
            found = {"ranked": [picked(row, ("rank", "label", "usd_per_month")) for row in ranked]} | found
        return within_limit(found, links)


def is_about(row: Json, name: str) -> bool:
    """Whether a row's name, of an accelerator or an assumption, has these words."""
    words = f"{row.get('accelerator')} {row.get('accelerator_name')} {row.get('assumption')} {row.get('name')}".lower()
    return all(word in words for word in name.lower().replace("-", " ").split()) or name.lower() in words


@tool
async def compare(ctx: Context[Any, Any], first_id: Id, second_id: Id) -> str:
    """Two answers side by side: decision, cost and first option of each, and the difference in cost."""
    async with client_of(ctx) as assay:
        found = await assay.compare(first_id, second_id)
        keys = ("usd_per_month", "usd_per_month_range", "usd_per_run")
        sides = [
            {
                "name": each["name"],
                "action": each["action"],
                "said": each["said"],
                "option": (each["first"] or {}).get("label"),
                "cost": {key: (each["cost"] or {}).get(key) for key in keys},
                "prices_as_of": each["prices_as_of"],
            }
            for each in found
        ]
        costs = [side["cost"]["usd_per_month"] for side in sides]
        change = None if None in costs else costs[1] - costs[0]
        links = {"first": links_of(assay, first_id)["page"], "second": links_of(assay, second_id)["page"]}
        return within_limit({"first": sides[0], "second": sides[1], "usd_per_month_change": change}, links)


@tool
async def what_to_test_next(ctx: Context[Any, Any], advice_id: Id) -> str:
    """The one load test or quote that is most likely to change the choice, its cost and what knowing it is worth."""
    async with client_of(ctx) as assay:
        answer = await assay.answer(advice_id, include="", timeout_s=20.0)
        decision = answer.result.get("decision") or {}
        gate, settle = decision.get("gate") or {}, decision.get("settle") or {}
        changes = [row["detail"] for row in answer.result.get("sensitivity", []) if row["within_range"]]
        none = "No one test or quote is known to be worth its cost."
        said = gate.get("said") or settle.get("said") or none
        test = {key: gate.get(key) for key in ("metric", "value", "unit", "test_usd", "worth_usd_per_month")}
        return within_limit(
            {"said": said, **test, "measurement": settle.get("measurement"), "changes_the_choice": changes},
            links_of(assay, advice_id),
        )


READS = (search_catalog, estimate, rank_quickly, get_answer, list_answers, explain, compare, what_to_test_next)


def server() -> MCPServer[Any]:
    """The server with its tools. ASSAY_URL names the Assay server that they ask."""
    found: MCPServer[Any] = MCPServer("assay", instructions=INSTRUCTIONS, log_level="WARNING")
    for each in READS:
        found.add_tool(each, annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    asks = ToolAnnotations(read_only_hint=False, destructive_hint=False)
    found.add_tool(advise, annotations=asks, structured_output=False)
    return found


def http_options(host: str, port: int, names: list[str]) -> Json:
    """How the streamable HTTP transport runs: each request stands alone, with its own token; pages of other sites
    cannot call it. names: further values of Host that it answers to."""
    hosts = [f"{host}:{port}", f"127.0.0.1:{port}", f"localhost:{port}", *names]
    security = TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"{how}://{name}" for name in hosts for how in ("http", "https")]
    )
    return {"host": host, "port": port, "stateless_http": True, "json_response": True, "transport_security": security}


def run(host: str = "", port: int = 0, names: list[str] | None = None) -> None:
    """Serves over stdio, or over HTTP at host and port until it is stopped; callers over HTTP bring their own token."""
    if not host:
        server().run("stdio")
    else:
        os.environ.pop("ASSAY_TOKEN", None)
        server().run("streamable-http", **http_options(host, port, names or []))
