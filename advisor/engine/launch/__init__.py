"""Launch commands, manifests and load tests for a chosen deployment, and launch files of a training plan."""

from advisor.engine.launch.command import Launch, context_limit, launch, rare_request_tokens
from advisor.engine.launch.draft_options import checkpoint_of
from advisor.engine.launch.kubernetes import FIRST_HOST, label, printable, yaml_text
from advisor.engine.launch.served_checkpoint import served_checkpoint
from advisor.engine.launch.training_runs.place import TrainingPlace
from advisor.engine.launch.training_runs.plan import LAUNCHERS, TrainingLaunch, training_launch
