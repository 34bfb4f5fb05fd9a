"""Is this process alive (healthz), and can it do its work (readyz)?"""

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from catalog.models import CatalogLoad


@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@login_not_required
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers and a catalog is loaded, else 503 with the reason."""
    try:
        loaded = CatalogLoad.objects.exists()
    except DatabaseError as error:
        connection.close()
        return JsonResponse({"status": "unavailable", "reason": f"database: {type(error).__name__}"}, status=503)
    if not loaded:
        return JsonResponse({"status": "unavailable", "reason": "no catalog: run manage.py load_catalog"}, status=503)
    return JsonResponse({"status": "ready"})
