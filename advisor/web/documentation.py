"""The documentation at /docs/: the site built by `make docs`, or the Markdown sources without it."""

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from csp.decorators import csp_update
from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.utils._os import safe_join
from django.views.decorators.http import require_safe
from django.views.static import serve

from advisor.templatetags.glossary import terms
from catalog.shipped import DOCS

INLINE_SCRIPT = re.compile(r"<script(?: id=\"[^\"]*\")?>(.*?)</script>", flags=re.DOTALL)


@require_safe
def page(request: HttpRequest, path: str = "") -> HttpResponseBase:
    """A file of the built site; without a site, the page's Markdown source or the rendered glossary."""
    if (settings.DOCS_SITE / "index.html").is_file():
        return _built(request, path)
    return _source(request, path)


def _built(request: HttpRequest, path: str) -> HttpResponseBase:
    file = _inside(settings.DOCS_SITE, path)
    if file.is_dir():
        if path and not path.endswith("/"):
            return HttpResponseRedirect(request.path + "/")
        path, file = f"{path}index.html", file / "index.html"
    if not file.is_file():
        raise Http404("This documentation page does not exist.")
    response = serve(request, path, document_root=str(settings.DOCS_SITE))
    if file.suffix != ".html":
        return response
    hashes = _script_hashes(file, file.stat().st_mtime_ns)
    return csp_update({"script-src": hashes})(lambda request: response)(request)


@lru_cache(maxsize=256)
def _script_hashes(file: Path, changed_ns: int) -> list[str]:
    """The CSP hashes of the theme's inline scripts in a page."""
    scripts = {match[1] for match in INLINE_SCRIPT.finditer(file.read_text(encoding="utf-8"))}
    return sorted(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)


def _source(request: HttpRequest, path: str) -> HttpResponseBase:
    folder = DOCS
    if not path:
        pages = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.md"))
        return render(request, "advisor/docs_unbuilt.html", {"pages": pages})
    if path == "glossary/" and terms():
        return render(request, "advisor/glossary.html", {"entries": dict.fromkeys(terms().values())})
    name = path.rstrip("/")
    names = (name, f"{name}.md", f"{name}/README.md", f"{name}/index.md")
    file = next((file for each in names if (file := _inside(folder, each)).is_file()), None)
    if file is None:
        raise Http404("This documentation page does not exist.")
    if file.suffix not in (".md", ".service"):
        return serve(request, str(file.relative_to(folder)), document_root=str(folder))
    return HttpResponse(file.read_bytes(), content_type="text/plain; charset=utf-8")


def _inside(folder: Path, path: str) -> Path:
    """The path inside the folder. Raises Http404 if it is outside."""
    try:
        return Path(safe_join(folder, path))
    except (SuspiciousFileOperation, ValueError) as error:
        raise Http404("This documentation page does not exist.") from error
