"""Forms of the worker pages."""

from typing import Any

from django import forms

from catalog.models import Accelerator, Organisation
from probes.agent.axes import KINDS
from probes.machines import agents
from probes.models import Agent

LABEL_HELP = "One name=value per line. Jobs can select machines by label."


class EnrolForm(forms.Form):
    labels = forms.CharField(
        required=False, max_length=1000, widget=forms.Textarea(attrs={"rows": 3}), help_text=LABEL_HELP
    )
    accelerator = forms.ChoiceField(
        required=False, help_text="Needed only if the device name does not identify it, as with most CPUs and TPUs."
    )

    trusted = forms.BooleanField(
        required=False,
        label="Trust this machine's results",
        help_text="Trusted results are used immediately. Others wait for a second machine or a person to confirm them.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chips = [(chip.slug, chip.name) for chip in Accelerator.objects.order_by("name")]
        self.fields["accelerator"].choices = [("", "detect from the device"), *chips]  # type: ignore[attr-defined]

    def clean_labels(self) -> dict[str, str]:
        lines = [line.strip() for line in self.cleaned_data["labels"].splitlines() if line.strip()]
        if invalid := [line for line in lines if not all(map(str.strip, line.partition("=")))]:
            raise forms.ValidationError(f"{invalid[0]!r}: use name=value")
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def all_labels(self) -> dict[str, str]:
        slug = self.cleaned_data["accelerator"]
        return self.cleaned_data["labels"] | ({"accelerator": slug} if slug else {})


class QueueForm(forms.Form):
    suite = forms.ChoiceField(
        choices=[("quick", "quick, under a minute"), ("full", "full, under ten minutes"), ("custom", "selected kinds")]
    )
    kinds = forms.MultipleChoiceField(
        required=False, choices=[(kind, kind.replace("_", " ")) for kind in KINDS], widget=forms.CheckboxSelectMultiple
    )
    machines = forms.ModelMultipleChoiceField(queryset=Agent.objects.none(), widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, organisation: Organisation, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["machines"].queryset = agents.visible(organisation).filter(revoked_at=None)  # type: ignore[attr-defined]
        self.fields["machines"].label_from_instance = lambda agent: agent.name  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("suite") == "custom" and not data.get("kinds"):
            self.add_error("kinds", "Select at least one kind.")
        return data

    def spec(self) -> dict[str, Any]:
        custom = self.cleaned_data["suite"] == "custom"
        return {"suite": self.cleaned_data["suite"], "kinds": self.cleaned_data["kinds"] if custom else None}
