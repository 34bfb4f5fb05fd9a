"""Django settings. The defaults work on one machine; environment variables change them (see the README)."""

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from random import uniform

import environ
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key
from kombu import Exchange, Queue

from advisor import storage
from advisor.watch import logs
from catalog import shipped

env = environ.Env()
BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(env.str("ASSAY_VAR", default="") or storage.default_folder(BASE_DIR)).resolve()
storage.make_private(VAR, BASE_DIR)
if not os.access(BASE_DIR / "advisor", os.W_OK):  # where Numba otherwise keeps compiled functions
    os.environ.setdefault("NUMBA_CACHE_DIR", str(VAR / "numba"))
MIN_FREE_MB = env.int(
    "ASSAY_MIN_FREE_MB", default=200
)  # with less free space, nothing is computed and /readyz returns 503


def stored_secret(path: Path) -> str:
    """The installation's secret key, created once, also if two processes start at the same time."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(get_random_secret_key())
        try:
            os.link(draft, path)  # fails if another process was first; then its key is used
        except FileExistsError:
            pass
        draft.unlink()
    return path.read_text()


DEBUG = env.bool("ASSAY_DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or stored_secret(VAR / "secret_key")
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
ALLOWED_HOSTS = env.list("ASSAY_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("ASSAY_TRUSTED_ORIGINS", default=[])
REVISION = env.str("ASSAY_REVISION", default="").strip()  # Git commit that an image was built from
PUBLIC_URL = env.str("ASSAY_URL", default="http://127.0.0.1:8000")  # of links in e-mails
OPEN = env.bool("ASSAY_OPEN", default=True)  # False: every page and call needs a login
HUB_URL = env.str("ASSAY_HUB_URL", default="")  # empty: no access to the Hugging Face Hub

INSTALLED_APPS = [
    "advisor",
    "catalog",
    "probes",
    "django.contrib.admin.apps.SimpleAdminConfig",  # its pages load with the URLs: workers and commands need none
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "axes",
    "csp",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "simple_history",
]

MIDDLEWARE = [
    "advisor.watch.http.follow",
    "advisor.ops.health.answer_probes",  # before all others: probes may have any Host header and must not be redirected
    "probes.status.pages.answer_scrapes",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "advisor.ops.private_answers.keep_private",
    "django.middleware.gzip.GZipMiddleware",
    "csp.middleware.CSPMiddleware",
    "advisor.api.limits.limit_calls",
    "advisor.ops.request_limits.refuse_long_bodies",
    "advisor.ops.request_limits.refuse_nul",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "advisor.ops.reader.ShowToReader",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "advisor.api.page_tokens.AcceptTokens",
    *([] if OPEN else ["django.contrib.auth.middleware.LoginRequiredMiddleware"]),
    "catalog.accounts.MembersOnly",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "axes.middleware.AxesMiddleware",
    "catalog.rest.selection.ChooseFields",
]

ROOT_URLCONF = "advisor.urls"
WSGI_APPLICATION = "advisor.wsgi.application"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "ask"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "catalog.accounts.for_templates",
                "catalog.pricing.reader.for_templates",
            ]
        },
    }
]

# Database: SQLite in one file, or PostgreSQL. No connection pool, because psycopg's does not survive a fork.
if "DATABASE_URL" in env.ENVIRON:
    DATABASES = {"default": {**env.db("DATABASE_URL"), "CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}}
else:
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": VAR / "assay.sqlite3"}}
if not DATABASES["default"].get("ENGINE"):
    raise ImproperlyConfigured("DATABASE_URL: use a URL such as postgres://assay:PASSWORD@host/assay, or unset it")
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"] |= {
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;",
        },
    }

# Broker: files, or Redis. Messages only wake a worker; the database row decides (advise.py).
REDIS_URL = env.str("REDIS_URL", default="")
BROKER_DIR = VAR / "broker"
if REDIS_URL:
    CELERY_BROKER_URL = REDIS_URL
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "visibility_timeout": 1800,
        "socket_connect_timeout": 1,
        "socket_timeout": 10,
        "global_keyprefix": env.str("ASSAY_REDIS_PREFIX", default=""),
    }
else:
    CELERY_BROKER_URL = "filesystem://"
    CELERY_BROKER_TRANSPORT = "advisor.ops.broker:Transport"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(BROKER_DIR / "messages"),
        "data_folder_out": str(BROKER_DIR / "messages"),
        "control_folder": str(BROKER_DIR / "control"),
        "polling_interval": 0.2,  # with kombu's default of 1 s, the median wait of a job is 1.8 s
    }
    for folder in ("messages", "control"):
        (BROKER_DIR / folder).mkdir(parents=True, exist_ok=True)
# Queues of answers, of calibrations from probe results, of sweeps, and of price refreshes. A worker takes them all
# unless `--queues` names some: a worker of its own for the last two keeps sweeps punctual and out of the recycling.
QUEUES = ANSWERS, PROBES, SWEEPS, REFRESH = ("answers", "probes", "sweeps", "refresh")
EARLIER_QUEUE = "celery"  # of everything before 0.2; remove it in 0.3
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name) for name in (*QUEUES, EARLIER_QUEUE)]
CELERY_TASK_DEFAULT_QUEUE = ANSWERS
CELERY_TASK_ROUTES = {
    "probes.calibrate": {"queue": PROBES},
    "advice.sweep": {"queue": SWEEPS},
    "probes.sweep": {"queue": SWEEPS},
    "prices.sync": {"queue": REFRESH},
    "catalog.bundle": {"queue": REFRESH},
    "answers.compare": {"queue": REFRESH},
    "webhooks.send": {"queue": SWEEPS},
}
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_SOFT_TIME_LIMIT = env.float("ASSAY_LIMIT_S", default=540.0)
CELERY_TASK_TIME_LIMIT = CELERY_TASK_SOFT_TIME_LIMIT + 60
CELERY_WORKER_MAX_TASKS_PER_CHILD = 200  # a process of a prefork pool is replaced after so many
GRACE_S = env.float("ASSAY_GRACE_S", default=20.0)  # time to finish jobs and requests after SIGTERM
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = GRACE_S
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for its broker without limit
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}
CELERY_TIMEZONE = "UTC"

# Advice: leases of workers and intervals of the sweep.
ADVICE_LEASE_S = env.float("ASSAY_LEASE_S", default=30.0)
ADVICE_RESEND_S = env.float("ASSAY_RESEND_S", default=15.0)
ADVICE_SWEEP_S = env.float("ASSAY_SWEEP_S", default=5.0)
ADVICE_MAX_ATTEMPTS = 3
ADVICE_MAX_QUEUED = env.int("ASSAY_MAX_QUEUED_ORGANIZATION", default=1000)  # then it can queue no more workloads
ADVICE_MAX_QUEUED_PERSON = env.int("ASSAY_MAX_QUEUED_PERSON", default=200)
STUDY_MAX_OPEN = env.int("ASSAY_MAX_STUDIES_ORGANIZATION", default=20)  # at the same time
STUDY_MAX_OPEN_PERSON = env.int("ASSAY_MAX_STUDIES_PERSON", default=5)
ADVICE_OUTAGE_S = env.float("ASSAY_OUTAGE_S", default=300.0)  # workers keep a result so long until they can write it
INTERNAL_ERRORS_END_ANSWERS = False  # tests set it: one bad candidate or section then ends the whole answer
ADVICE_PROBE_WAIT_S = env.float("ASSAY_PROBE_WAIT_S", default=600.0)  # for measurements that a workload asks for


def retention_days(name: str) -> int | None:
    """Days that rows are kept after they ended; None: forever."""
    text = env.str(name, default="").strip()
    if text and not (text.isascii() and text.isdecimal() and 0 < int(text) <= 36_500):
        raise ImproperlyConfigured(
            f"{name}={text}: use a whole number of days from 1 to 36500, or unset it to keep all"
        )
    return int(text) if text else None


# Retention: the sweep deletes rows this many days after they ended.
KEEP_ADVICE_DAYS = retention_days("ASSAY_KEEP_ADVICE_DAYS")
KEEP_FAILED_DAYS = retention_days("ASSAY_KEEP_FAILED_DAYS")
KEEP_STUDIES_DAYS = retention_days("ASSAY_KEEP_STUDIES_DAYS")
KEEP_SHARES_DAYS = retention_days("ASSAY_KEEP_SHARES_DAYS")
KEEP_LOAD_TESTS_DAYS = retention_days("ASSAY_KEEP_LOAD_TESTS_DAYS")
KEEP_TOKENS_DAYS = retention_days("ASSAY_KEEP_TOKENS_DAYS")
KEEP_LOGINS_DAYS = retention_days("ASSAY_KEEP_LOGINS_DAYS")
KEEP_DELIVERIES_DAYS = retention_days("ASSAY_KEEP_DELIVERIES_DAYS")
KEEP_AUDIT_DAYS = retention_days("ASSAY_KEEP_AUDIT_DAYS")
# A worker compares the expiration of a message with its own clock, which may differ from that of beat by some minutes.
MESSAGE_EXPIRES_S = 3600
CELERY_BEAT_SCHEDULER = "advisor.ops.schedule:Scheduler"
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "advice.sweep", "schedule": ADVICE_SWEEP_S, "options": {"expires": MESSAGE_EXPIRES_S}}
}

# Prices: sources that are read regularly (none by default), and who is told what changed.
PRICE_SOURCES = [name.strip() for name in env.list("ASSAY_PRICE_SOURCES", default=[]) if name.strip()]
BUNDLE_KEYS = [key.strip() for key in env.list("ASSAY_BUNDLE_KEYS", default=[]) if key.strip()]  # public, Base64
# A bundle that is applied regularly: the URL of a file, or a folder of which the newest file counts. Empty: none.
BUNDLE_URL = env.str("ASSAY_BUNDLE_URL", default="").strip()
BUNDLE_HOURS = env.float("ASSAY_BUNDLE_HOURS", default=24.0)
PRICE_REFRESH_HOURS = env.float("ASSAY_PRICE_REFRESH_HOURS", default=24.0)
PRICE_WATCHED = env.int("ASSAY_PRICE_WATCHED", default=20)  # saved answers that are compared, the newest first
PRICE_CHANGE_FRACTION = env.float("ASSAY_PRICE_CHANGE_FRACTION", default=0.05)  # of the cost, that is reported
WEB_THREADS = max(env.int("ASSAY_WEB_THREADS", default=4), 2)  # of a web process; a quarter may wait for answers
PRICE_WEBHOOK_URL = env.str("ASSAY_PRICE_WEBHOOK_URL", default="")
PRICE_EMAILS = env.list("ASSAY_PRICE_EMAILS", default=[])
DEFAULT_FROM_EMAIL = env.str("ASSAY_FROM_EMAIL", default="assay@localhost")
vars().update(env.email_url("ASSAY_EMAIL_URL", default="consolemail://"))
# Without a mail server, e-mails are printed, but no links that open accounts: others read the log of a server.
EMAIL_TO_LOG = env.bool("ASSAY_EMAIL_TO_LOG", default=False)
if not ("ASSAY_EMAIL_URL" in env.ENVIRON or EMAIL_TO_LOG):
    EMAIL_BACKEND = "advisor.accounts.mail.Withheld"
for task, hours in (("prices.sync", PRICE_REFRESH_HOURS if PRICE_SOURCES else 0.0),
                    ("catalog.bundle", BUNDLE_HOURS if BUNDLE_URL else 0.0)):  # fmt: skip
    if hours:
        CELERY_BEAT_SCHEDULE[task.split(".")[0]] = {
            "task": task,
            "schedule": hours * 3600 * uniform(0.95, 1.05),  # noqa: S311  installations must not ask together
            "options": {"expires": MESSAGE_EXPIRES_S},
        }


def networks(name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks in CIDR notation, separated by commas."""
    try:
        return tuple(ip_network(each.strip()) for each in env.list(name, default=[]) if each.strip())
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}; use networks such as 10.0.0.0/8, separated by commas") from error


# Webhooks go to public addresses, and to those of these networks; without TLS only to loopback addresses of them.
WEBHOOK_NETWORKS = networks("ASSAY_WEBHOOK_NETWORKS")

METRICS_TOKEN = env.str("ASSAY_METRICS_TOKEN", default="")  # empty: /metrics answers this machine only
WARM = env.bool("ASSAY_WARM", default=True)  # web processes load in the background what first pages need

TOKEN_DAYS = env.int("ASSAY_TOKEN_DAYS", default=90)  # lifetime of an API token if none is asked for
TOKEN_MAX_DAYS = env.int("ASSAY_TOKEN_MAX_DAYS", default=366)
if not 1 <= TOKEN_DAYS <= TOKEN_MAX_DAYS:
    raise ImproperlyConfigured("ASSAY_TOKEN_DAYS must be a number from 1 to ASSAY_TOKEN_MAX_DAYS")

# API calls of people per minute; 0: no limit.
API_PER_MINUTE_TOKEN = env.int("ASSAY_API_PER_MINUTE_TOKEN", default=600)
API_PER_MINUTE_ADDRESS = env.int("ASSAY_API_PER_MINUTE_ADDRESS", default=1200)
ESTIMATES_PER_MINUTE = env.int("ASSAY_ESTIMATES_PER_MINUTE", default=60)  # per token, account or address
QUICK_PER_MINUTE = env.int("ASSAY_QUICK_PER_MINUTE", default=240)  # what-if rankings; the same
WORK_PER_MINUTE = env.int("ASSAY_WORK_PER_MINUTE", default=2400)  # of a token, in units of api/limits.py

# Probes: polling rate and leases of agents.
PROBE_LEASE_S = env.float("ASSAY_PROBE_LEASE_S", default=60.0)
PROBE_POLL_S = env.int("ASSAY_PROBE_POLL_S", default=5)
PROBE_POLLS_PER_S = 100  # by all agents together
PROBE_MAX_ATTEMPTS = 3
PROBE_BACKOFF_S = (10, 60, 300)
PROBE_QUEUE_HOURS = 24
PROBE_MAX_RESULT_BYTES = 4 * 1024 * 1024
PROBE_TOKEN_DAYS = env.int("ASSAY_PROBE_TOKEN_DAYS", default=90)  # agents renew theirs after half of it
PROBE_CALLS_PER_MINUTE_AGENT = 120
PROBE_CALLS_PER_MINUTE_ADDRESS = 2 * 60 * PROBE_POLLS_PER_S  # a whole cluster may share one address
PROBE_REFUSALS_PER_MINUTE = 60
PROXIES = env.int("ASSAY_PROXIES", default=0)  # number of reverse proxies that add to X-Forwarded-For
CELERY_BEAT_SCHEDULE["probes"] = {
    "task": "probes.sweep",
    "schedule": ADVICE_SWEEP_S,
    "options": {"expires": MESSAGE_EXPIRES_S},
}


def redis_cache() -> dict[str, object]:
    """By default, a call to Redis never times out, and is tried four times if Redis is not available."""
    from redis.backoff import NoBackoff  # slow to import, and many installations have no Redis
    from redis.retry import Retry

    options = {"socket_connect_timeout": 1, "socket_timeout": 2, "retry": Retry(NoBackoff(), 1)}
    return {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL, "OPTIONS": options}


CACHES = {
    "default": redis_cache()
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 20_000}},
    # Rendered pages of the catalog, compressed: about 10 kB each, in every web process.
    "pages": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "pages",
        "TIMEOUT": 3600,
        "OPTIONS": {"MAX_ENTRIES": 1_000},
    },
}

REST_FRAMEWORK = {
    "EXCEPTION_HANDLER": "advisor.api.problems.problem",
    "DEFAULT_SCHEMA_CLASS": "advisor.api.lifecycle.Schema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "advisor.api.tokens.PersonToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["advisor.api.tokens.Allowed"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "catalog.rest.Pages",
    "DEFAULT_FILTER_BACKENDS": [
        "catalog.rest.KnownParameters",
        "catalog.rest.Filters",
    ],
    "PAGE_SIZE": 50,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Assay",
    "DESCRIPTION": "Recommends accelerators for AI workloads, with configuration and cost.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "advisor.api.openapi.plain_nullables",
        "advisor.api.openapi.workload_alone_or_inside",
        "advisor.api.openapi.document_fields",
        "advisor.api.openapi.document_refusals",
    ],
    "SERVE_PERMISSIONS": ["advisor.api.tokens.Allowed"],
    "ENUM_NAME_OVERRIDES": {
        "AdviceState": "advisor.models.Advice.State",
        "StudyKind": "advisor.models.Study.Kind",
        "ProbeJobState": "probes.models.Job.State",
        "ProbeResultState": "probes.models.Result.State",
        "ReceivedState": "probes.api.agent_views.RECEIVED",
        "CacheFormat": "advisor.workload.schema.CACHE_FORMATS",
        "Switch": "advisor.workload.schema.SWITCH",
        "TrainingPrecision": "advisor.workload.schema.PRECISION_NAMES",
        "Recomputing": "advisor.workload.schema.RECOMPUTE_NAMES",
        "TuningObjective": "advisor.workload.schema.OBJECTIVE_NAMES",
        "TuningMethod": "advisor.workload.schema.METHOD_NAMES",
        "EstimateMethod": "advisor.workload.fixed.deployment.ESTIMATE_METHODS",
        "DraftMethod": "advisor.workload.fixed.deployment.DRAFT_METHODS",
        "TrainingKind": "advisor.workload.fixed.training_run.TRAINING_KINDS",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
DJANGO_TABLES2_TABLE_ATTRS = {"class": "table"}


def groups_with_roles(text: str) -> tuple[tuple[str, str, str], ...]:
    """(group, slug of the organization, role) of each "GROUP=ORGANIZATION:ROLE"."""
    entries = [each.strip() for each in re.split(r"[;\n]" if re.search(r"[;\n]", text) else ",", text) if each.strip()]
    found = [re.fullmatch(r"(.+)=([\w-]+):(viewer|planner|operator|admin)", each) for each in entries]
    if wrong := [entry for entry, match in zip(entries, found, strict=True) if match is None]:
        raise ImproperlyConfigured(
            f"ASSAY_OIDC_GROUPS: {wrong[0]!r} must be GROUP=ORGANIZATION:ROLE, such as assay-admins=acme:admin, with a "
            "role of viewer, planner, operator, admin. Separate entries by commas, or by semicolons if a group's name "
            "has commas."
        )
    return tuple((match[1].strip(), match[2], match[3]) for match in found if match)


# Single sign-on by OpenID Connect: off without an issuer. The names OIDC_RP_... are of mozilla-django-oidc.
OIDC_ISSUER = env.str("ASSAY_OIDC_ISSUER", default="").strip()
OIDC_RP_CLIENT_ID = env.str("ASSAY_OIDC_CLIENT_ID", default="")
OIDC_RP_CLIENT_SECRET = env.str("ASSAY_OIDC_CLIENT_SECRET", default="")
OIDC_RP_SCOPES = env.str("ASSAY_OIDC_SCOPES", default="openid email profile")
OIDC_RP_SIGN_ALGO = env.str("ASSAY_OIDC_ALGORITHM", default="RS256")
OIDC_NAME = env.str("ASSAY_OIDC_NAME", default="single sign-on")  # of the provider, on the button
OIDC_GROUPS_CLAIM = env.str("ASSAY_OIDC_GROUPS_CLAIM", default="groups")
OIDC_GROUPS = groups_with_roles(env.str("ASSAY_OIDC_GROUPS", default=""))
OIDC_TRUST_EMAIL = env.bool("ASSAY_OIDC_TRUST_EMAIL", default=False)  # of providers that send no email_verified
OIDC_SESSION_HOURS = env.float("ASSAY_OIDC_SESSION_HOURS", default=12.0)  # then groups are read again
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10
OIDC_AUTHENTICATION_CALLBACK_URL = "single-sign-on-callback"
PASSWORD_SIGN_IN = env.bool("ASSAY_PASSWORD_SIGN_IN", default=True)
if OIDC_ISSUER and not re.match(r"https://|http://(127\.0\.0\.1|localhost)(:\d+)?(/|$)", OIDC_ISSUER):
    raise ImproperlyConfigured(f"ASSAY_OIDC_ISSUER={OIDC_ISSUER}: use an https:// address (http only on this machine)")
if OIDC_ISSUER and not (OIDC_RP_CLIENT_ID and OIDC_RP_CLIENT_SECRET):
    raise ImproperlyConfigured("ASSAY_OIDC_ISSUER also needs ASSAY_OIDC_CLIENT_ID and ASSAY_OIDC_CLIENT_SECRET")
if not re.fullmatch(r"(RS|ES)(256|384|512)", OIDC_RP_SIGN_ALGO):
    raise ImproperlyConfigured(f"ASSAY_OIDC_ALGORITHM={OIDC_RP_SIGN_ALGO}: use RS256 or another RS or ES algorithm")
if not (PASSWORD_SIGN_IN or OIDC_ISSUER):
    raise ImproperlyConfigured("ASSAY_PASSWORD_SIGN_IN=false needs single sign-on: set ASSAY_OIDC_ISSUER")

AUTHENTICATION_BACKENDS = [
    # first: a locked address must not keep out those whom the provider knows
    *(["advisor.accounts.single_sign_on.Backend"] if OIDC_ISSUER else []),
    "axes.backends.AxesStandaloneBackend",
    *(["django.contrib.auth.backends.ModelBackend"] if PASSWORD_SIGN_IN else []),
    "advisor.accounts.sign_in_link.Backend",
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
AXES_HANDLER = "advisor.ops.login_limits.Handler"
AXES_CLIENT_IP_CALLABLE = "advisor.api.limits.network"
AXES_FAILURE_LIMIT = 10  # failed logins per hour of one name from one address
LOGIN_FAILURES_ADDRESS = 50  # from one address, over all names that never logged in there
LOGIN_FAILURES_NAME = 100  # of one name, over all addresses where it never logged in
AXES_COOLOFF_TIME = 1  # hour
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False  # otherwise, continued guessing would keep the name locked
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address", "username"]  # read by login_limits.py
AXES_VERBOSE = False

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
SESSION_COOKIE_HTTPONLY = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if env.bool("ASSAY_HTTPS", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 31536000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = True

# Static files are served from the packages; ASSAY_COLLECTED=1 after `collectstatic` serves hashed, compressed copies.
STATIC_URL = "static/"
STATIC_ROOT = Path(env.str("ASSAY_STATIC", default="") or VAR / "static")  # where `collectstatic` writes
STATIC_ROOT.mkdir(exist_ok=True)
COLLECTED = env.bool("ASSAY_COLLECTED", default=False)
DOCS_SITE = Path(env.str("ASSAY_DOCS_SITE", default="") or shipped.SITE)  # built by `make docs`
WHITENOISE_USE_FINDERS = not COLLECTED
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Languages and currencies of pages: see docs/how-to/languages-and-currencies.md.
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "advisor" / "locale"]
FORMAT_MODULE_PATH = "advisor.formats"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_HTTPONLY = True
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = logs.configure(env.str("ASSAY_LOG_LEVEL", default=None))
