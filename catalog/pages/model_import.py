"""The page that previews and adds a model: from config.json (pasted or uploaded) or a Hugging Face ID."""

import json
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from advisor.engine.network import (
    MAX_PARAMETERS,
    active_parameters,
    checkpoint,
    cross_kv_elements,
    from_shape,
    parameters,
)
from catalog import owned_models
from catalog.accounts import Caller, Right, caller_of, refused
from catalog.details import shapes
from catalog.importers.models import ModelFiles, hf, hub, model_files
from catalog.loading.fixtures import FixtureError, Row
from catalog.models import ServedModel
from catalog.pages.lists import page


class ImportForm(forms.Form):
    config = forms.CharField(
        label="config.json", required=False, max_length=hub.MAX_BYTES, widget=forms.Textarea(attrs={"rows": 12})
    )
    upload = forms.FileField(label="or upload a file", required=False)
    quantization = forms.CharField(
        label="hf_quant_config.json",
        required=False,
        max_length=hub.MAX_BYTES,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="If the repository has one; older NVIDIA checkpoints state their format there",
    )
    hf_id = forms.CharField(label="or a Hugging Face ID", required=False, max_length=200)
    name = forms.CharField(label="Catalog name", required=False, max_length=120, help_text="For example acme/our-7b")
    published_parameters = forms.IntegerField(
        label="Published parameter count",
        required=False,
        min_value=1,
        max_value=MAX_PARAMETERS,
        help_text="For comparison",
    )
    confirm_size = forms.BooleanField(
        label="The size is right",
        required=False,
        help_text="Check only if the size shown is right although the name or the published size differs",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hub_field = self.fields["hf_id"]
        hub_field.help_text = "For example meta-llama/Llama-3.1-8B" if settings.HUB_URL else hub.DISABLED
        if not settings.HUB_URL:
            hub_field.widget.attrs["disabled"] = True  # only in the browser; clean_hf_id refuses it on the server

    def clean_hf_id(self) -> str:
        given = str(self.cleaned_data["hf_id"])
        if given and not settings.HUB_URL:
            raise forms.ValidationError(hub.DISABLED)
        if given and not hub.HUB_ID.fullmatch(given):
            raise forms.ValidationError("Enter owner/name, such as meta-llama/Llama-3.1-8B. Paths are not accepted.")
        return given

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if sum(bool(given.get(key)) for key in ("config", "upload", "hf_id")) != 1 and not self.errors:
            raise forms.ValidationError("Give exactly one: config.json, a file or a Hugging Face ID.")
        return given

    def given(self) -> tuple[ModelFiles, str]:
        """What was given, and the model's name in the catalog. FixtureError: it cannot be read."""
        given = self.cleaned_data
        if given["hf_id"]:
            files = model_files.from_hub(given["hf_id"])
            return files, given["name"] or given["hf_id"]
        config = hf.parsed(given["config"] or uploaded(given["upload"]), "config.json")
        beside = hf.parsed(given["quantization"], "hf_quant_config.json") if given["quantization"] else {}
        names = tuple(filter(None, (given["name"], model_files.own_name(config))))
        files = ModelFiles(
            config=model_files.with_quantization(config, beside),
            names=names,
            index={},
            source="config.json, provided by a user",
        )
        return files, given["name"] or "own-model"


def uploaded(upload: Any) -> str:
    content = upload.read(hub.MAX_BYTES + 1)
    if len(content) > hub.MAX_BYTES:
        raise FixtureError(f"the file is larger than {hub.MAX_BYTES:,} bytes")
    try:
        return str(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FixtureError(f"the file is not text: {error}") from error


def model_import(request: HttpRequest) -> HttpResponse:
    """Previews a model from config.json, and adds it to the catalog for those who may."""
    if request.method == "POST" and (sent := refused(request, Right.PLAN, "catalog:model-import")):
        return sent
    form = ImportForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {
        "name": "models",
        "form": form,
        "may_keep": caller_of(request).is_member and caller_of(request).may(Right.PLAN),
    }
    if request.method == "POST" and form.is_valid():
        try:
            files, name = form.given()
            if "keep" in request.POST and context["may_keep"]:
                kept = add(form, files, name, caller_of(request), "check “The size is right”")
                messages.success(request, f"{kept.hf_id} was added to the catalog.")
                return redirect("catalog:model", kept.slug)
            context |= preview(row_of(files, name), files, form.cleaned_data["published_parameters"])
        except FixtureError as error:
            form.add_error(None, str(error))
    is_wrong = request.method == "POST" and bool(form.errors)
    if "row" in context and not is_wrong:
        context["form"] = ImportForm(
            initial=form.cleaned_data
            | {"config": json.dumps(files.config, indent=1), "name": name, "hf_id": "", "quantization": ""}
        )
    return page(request, "import", context, status=422 if is_wrong else 200)


def row_of(files: ModelFiles, name: str) -> Row:
    """The model as a row of the catalog. FixtureError: its files do not describe a known architecture."""
    return hf.model_row(files.config, name, files.source, None)


def add(form: ImportForm, files: ModelFiles, name: str, caller: Caller, confirm: str) -> ServedModel:
    """Adds the model for the caller's organization. `confirm`: how to confirm a doubtful size.

    FixtureError: the size is doubtful, or the name is taken; nothing is overwritten. In single-user mode it is
    everybody's; there, maintainers of the catalog share it on its page.
    """
    row, published = row_of(files, name), form.cleaned_data["published_parameters"]
    files.warnings(form.cleaned_data["confirm_size"], confirm, published)
    if published:
        row["published_parameters"] = published
        row["sources"]["published"] = row["sources"]["shape"] | {"source": "provided by a user", "rounded": False}
    try:
        return owned_models.add(row, None if caller.is_alone else caller.own, caller.name)
    except owned_models.Taken as error:
        raise FixtureError(str(error)) from None


def preview(row: Row, files: ModelFiles, published: int | None) -> dict[str, Any]:
    """The template context of the preview."""
    model = from_shape(row["slug"], row["shape"])
    computed = parameters(model)
    return {
        "row": row,
        "model": model,
        "computed": computed,
        "active": active_parameters(model),
        "cross_cache_bytes": 2 * cross_kv_elements(model, model.source_tokens),
        "published": published,
        "difference": f"{(computed / published - 1) * 100:+.2f}%" if published else "",
        "quantized": checkpoint(files.config),
        "doubts": [doubt.text for doubt in files.doubts(published)],
        "shape_costs": shapes.costs(model),
    }
