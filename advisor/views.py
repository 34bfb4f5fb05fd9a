from django.http import HttpRequest, HttpResponse


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("Bad request", status=400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("Forbidden", status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("Not found", status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    return HttpResponse("Server error", status=500)
