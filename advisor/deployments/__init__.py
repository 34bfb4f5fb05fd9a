"""Running deployments read back from metrics, logs, results, manifests and scripts, and compared with their plan."""

from advisor.deployments.compare import Asked, Plan, compared, plan_of_answer
from advisor.deployments.files import Given, read_files
from advisor.deployments.records import DeploymentError, grouped
from advisor.deployments.text import parts, table
