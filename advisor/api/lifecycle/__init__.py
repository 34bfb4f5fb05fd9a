"""What clients need to plan upgrades: the versions of the service, and what of the API will go."""

from advisor.api.lifecycle.deprecation import Schema
from advisor.api.lifecycle.version import Version
