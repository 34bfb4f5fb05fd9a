"""Studies: many questions about one state of the catalog, cut into pieces that workers share."""

from advisor.studies import parts, pieces, tables
from advisor.studies.plan import EstimatesStudy, GridStudy, PricesStudy, WorkloadsStudy
