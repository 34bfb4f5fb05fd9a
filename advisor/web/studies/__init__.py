"""Pages of studies."""

from advisor.web.studies import every, one
