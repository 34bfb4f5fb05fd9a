"""Assay's REST API from Python: Assay, and AsyncAssay for async code. Needs httpx only."""

import asyncio
import functools
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from .shown import Answer, answer_of, error_line, problem_in

Workload = Mapping[str, Any] | Path | str  # a path, or the text of a workload file
MOST_PAUSE_S, AT_ONCE = 60.0, 1000  # whatever Retry-After says; estimates of one call
BY_LINE, BUSY = {"Accept": "application/x-ndjson"}, ("queued", "running")


class AssayError(Exception):
    """The server does not answer, or the advice failed, was canceled or is late."""


class Problem(AssayError):
    """The server refused the call. `errors`: `field` (a key path), `message` and `allowed` of each invalid field."""

    def __init__(self, response: httpx.Response, text: str) -> None:
        said = problem_in(response.headers.get("Content-Type", ""), text)
        self.status, self.errors = response.status_code, said.get("errors") or []
        what = said.get("detail") or said.get("title") or f"{response.url} answered {self.status}."
        self.detail = f"{response.url.path}: {what}" if self.status == 404 else what
        super().__init__("\n".join(map(error_line, self.errors)) or self.detail)


def call(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of both clients: of Assay it returns the result, of AsyncAssay an awaitable."""
    return functools.wraps(method)(lambda self, *args, **named: self._run(method(self, *args, **named)))


def pause_s(response: httpx.Response, otherwise: float) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), MOST_PAUSE_S) if text.isdecimal() else otherwise


def data_of(response: httpx.Response) -> Any:
    """AssayError: something else answered, such as the sign-in page of a proxy."""
    with suppress(ValueError):
        return response.json()
    raise AssayError(f"{response.url} did not answer with JSON; is it an Assay server?")


def body_of(workload: Workload) -> dict[str, Any]:
    if isinstance(workload, Mapping):
        return {"json": dict(workload)}
    text = workload if isinstance(workload, str) and "\n" in workload else Path(workload).read_text("utf-8")
    return {"content": text.encode(), "headers": {"Content-Type": "application/yaml"}}


class Calls:
    """url and token: default to ASSAY_URL and ASSAY_TOKEN. tries: of a call that gets no answer, 429 or 503."""

    _blocks = True

    def __init__(self, url: str = "", token: str | None = None, *, tries: int = 5, **options: Any) -> None:
        self.url, self.tries = (url or os.environ.get("ASSAY_URL", "")).rstrip("/"), max(tries, 1)
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("Give the server's address, such as https://assay.example, here or in ASSAY_URL.")
        token = os.environ.get("ASSAY_TOKEN", "") if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        options = {"base_url": f"{self.url}/api/v1/", "headers": headers, "timeout": 120.0, **options}
        self._http: Any = (httpx.Client if self._blocks else httpx.AsyncClient)(**options)

    def _run(self, steps: Any) -> Any:
        """Blocking: runs the coroutine to its end, which waits for no event loop."""
        try:
            return steps.send(None) if self._blocks else steps
        except StopIteration as end:
            return end.value

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds) if self._blocks else await asyncio.sleep(seconds)

    async def _lines(self, response: httpx.Response) -> AsyncIterator[str]:
        if self._blocks:
            for line in response.iter_lines():
                yield line
        else:
            async for line in response.aiter_lines():
                yield line

    async def _send(self, method: str, path: str, stream: bool = False, **options: Any) -> httpx.Response:
        """Every call may be repeated: Idempotency-Key makes one request of a repeated one."""
        request = self._http.build_request(method, path, **options)
        if not str(request.url).startswith(str(self._http.base_url)):  # the token is for this server alone
            raise ValueError(f"Give a path below {self.url}/api/v1/, such as freshness.")
        for tried in range(1, self.tries + 1):
            try:
                sent = self._http.send(request, stream=stream)
                response: httpx.Response = sent if self._blocks else await sent
            except httpx.TransportError as error:
                if tried == self.tries:
                    raise AssayError(f"{self.url} does not answer: {error or type(error).__name__}") from error
                await self._pause(min(2.0**tried, MOST_PAUSE_S))
                continue
            if response.status_code not in (429, 503) or tried == self.tries:
                break
            await self._pause(pause_s(response, 2.0))
        if not response.is_success:
            raise Problem(response, "".join([line async for line in self._lines(response)]))
        return response

    async def _ready(self, path: str, timeout_s: float = 900.0, ended: bool = False, **params: Any) -> httpx.Response:
        """The response, once it is not 202 (parts are still computed) and, if `ended`, the advice has ended."""
        end, get = time.monotonic() + timeout_s, functools.partial(self._send, "GET", path, params=params)
        while (got := await get()).status_code == 202 or ended and data_of(got)["state"] in BUSY:
            if time.monotonic() > end:
                raise AssayError(f"{path} is not finished after {timeout_s:g} seconds.")
            await self._pause(pause_s(got, 1.0))
        return got

    async def _answer(self, advice_id: str, *, timeout_s: float = 900.0, include: str = "pareto") -> Answer:
        """The Answer of an advice, which is waited for. include: parts of it, as in the API."""
        wait = max(0, min(30, int(timeout_s)))
        advice = data_of(await self._ready(f"advice/{advice_id}", timeout_s, True, wait=wait))
        if advice["state"] != "done":
            raise AssayError(f"Advice {advice_id} is {advice['state']}. {advice['error']}".strip())
        return answer_of(advice, data_of(await self._ready(f"advice/{advice_id}/result", timeout_s, include=include)))

    answer = call(_answer)

    @call
    async def advise(self, workload: Workload, wait: bool = True, key: str = "", **options: Any) -> Any:
        """The Answer to a workload; wait=False: the queued advice. key: an idempotency key of your own."""
        body = body_of(workload)
        headers = {"Idempotency-Key": key or uuid4().hex, **body.pop("headers", {})}
        advice = data_of(await self._send("POST", "advice", headers=headers, **body))
        return await self._answer(advice["id"], **options) if wait else advice

    @call
    async def compare(self, *advice_ids: str) -> list[dict[str, Any]]:
        """The summary of each advice."""
        return [data_of(await self._ready(f"advice/{each}/summary")) for each in advice_ids]

    @call
    async def document(self, advice_id: str, name: str) -> bytes:
        """A document, such as memo.md or workbook.xlsx."""
        return (await self._ready(f"advice/{advice_id}/documents/{name}")).content

    @call
    async def estimate(self, **deployment: Any) -> Any:
        """One deployment or training step: estimate(model=..., accelerator=..., weights=..., isl=..., osl=...)."""
        return data_of(await self._send("POST", "estimate", json=deployment))

    @call
    async def quick(self, workload: Workload) -> Any:
        """The ranking by closed formulas."""
        return data_of(await self._send("POST", "quick", **body_of(workload)))

    @call
    async def search(self, kind: str, text: str = "", **filters: Any) -> Any:
        """Rows of a list of the catalog: accelerators, models, frameworks, prices, api-prices, regions."""
        return data_of(await self._send("GET", kind, params={"search": text, **filters}))["results"]

    @call
    async def get(self, path: str, **params: Any) -> Any:
        """Any other resource: get("freshness")."""
        return data_of(await self._ready(path, **params))

    async def _rows(self, entries: Iterable[Any], base: Mapping[str, Any] | None = None) -> AsyncIterator[Any]:
        """Many estimates: `index` with `estimate` or `problem` of each, as soon as it is computed."""
        rows = list(entries)
        for first in range(0, len(rows), AT_ONCE):
            body = {"base": dict(base or {}), "estimates": rows[first : first + AT_ONCE]}
            async for line in self._lines(await self._send("POST", "estimates", True, json=body, headers=BY_LINE)):
                yield (found := json.loads(line)) | {"index": found["index"] + first}


class AsyncAssay(Calls, AbstractAsyncContextManager["AsyncAssay"]):
    """`async with AsyncAssay(url, token) as assay: await assay.advise("workload.yaml")`."""

    _blocks, estimates = False, Calls._rows

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()


class Assay(Calls, AbstractContextManager["Assay"]):
    """`with Assay(url, token) as assay: assay.advise("workload.yaml")`."""

    def estimates(self, entries: Iterable[Any], base: Mapping[str, Any] | None = None) -> Iterator[Any]:
        rows = self._rows(entries, base)
        while row := self._run(anext(rows, None)):
            yield row

    def __exit__(self, *error: object) -> None:
        self._http.close()
