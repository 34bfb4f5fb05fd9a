"""What was imported: sources, counts and held figures, and how it leaves the installation again."""

import csv
import io
from pathlib import Path
from typing import Any

from django.db.models import Count

from advisor.fidelity import COLUMNS
from catalog.loading import evidence as files
from catalog.models import EvidenceImport, EvidenceRow, HeldEvidence

UNKNOWN = "not known"


def sources() -> list[EvidenceImport]:
    """The newest import of each source."""
    newest: dict[str, EvidenceImport] = {}
    for row in EvidenceImport.objects.order_by("made_at", "pk"):
        newest[row.source_key] = row
    return [newest[key] for key in sorted(newest)]


def status() -> dict[str, Any]:
    """Each source with its figures, and how many wait for a decision."""
    figures = {
        row["source_key"]: row["count"]
        for row in EvidenceRow.objects.order_by().values("source_key").annotate(count=Count("pk"))
    }
    engines: dict[str, set[str]] = {}
    for key, *engine in (
        EvidenceRow.objects.order_by().values_list("source_key", "framework", "framework_version").distinct()
    ):
        engines.setdefault(key, set()).add(" ".join(part for part in engine if part))
    held: dict[str, int] = {}
    for key in HeldEvidence.objects.filter(state="held").values_list("evidence_import__source_key", flat=True):
        held[key] = held.get(key, 0) + 1
    return {
        "figures": sum(figures.values()),
        "held": sum(held.values()),
        "sources": [
            {
                "source_key": row.source_key,
                "name": row.name,
                "place": row.place,
                "client": row.client,
                "licence": row.licence or UNKNOWN,
                "engines": sorted(engines.get(row.source_key, ())),
                "as_of": row.as_of.isoformat(),
                "imported_at": f"{row.made_at:%Y-%m-%d %H:%M}",
                "imported_by": row.made_by,
                "file": row.file_name,
                "format": row.file_format,
                "figures": figures.get(row.source_key, 0),
                "held": held.get(row.source_key, 0),
                "last_import": row.counts,
            }
            for row in sources()
        ],
    }


def held_line(held: HeldEvidence) -> str:
    """One held figure in words."""
    row = held.row
    chips = f"{row.get('n_accelerators') or '?'} x {row.get('accelerator_slug')}"
    run = ", ".join((chips, row.get("model_id", ""), row.get("framework", "")))
    return f"{held.pk}: {row['id']} ({run}) {row['metric']} {row['value']} {held.reason}"


def measured_rows() -> str:
    """All imported figures as the CSV that `fidelity` and `calibrate` read."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(files.measured_row(row) for row in EvidenceRow.objects.order_by("pk"))
    return out.getvalue()


def export(directory: Path) -> int:
    """Writes the catalog files of everything imported to DIRECTORY/evidence. Returns the number of figures."""
    return files.write(directory / files.FOLDER, sources())
