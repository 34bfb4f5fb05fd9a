# Assay: `make demo` first, then `make test`. Python 3.11 or newer; PYTHON=... chooses one.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some environments forbid Python to keep what it compiled: every process that a test starts would compile it again.
export PYTHONDONTWRITEBYTECODE :=

FITS := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c '$(FITS)' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --constraint requirements.txt
CORE := $(VENV)/.core
ALL := $(VENV)/.all
ASK := $(PY) manage.py

.PHONY: demo test serve check style types django layout docs wheel clients messages examples lock fidelity bench soak mutants data chart-library clean

demo: $(CORE)
	@$(ASK) demo

# A file's tests stay together: many share a catalog. One process more than cores, because some tests mostly wait; in
# the order of the folders, so that no slow file comes last.
PROCESSES ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 1 : 4)))
PYTEST_ARGS ?= -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
test: $(ALL)
	@$(PY) -m pytest $(PYTEST_ARGS)

serve: $(CORE)
	@$(ASK) up $(UP_ARGS)

data: $(CORE)
	@$(ASK) migrate --verbosity 0
	@$(ASK) load_catalog --verbosity 0

# The searchable documentation site; `make serve` then shows it at /docs/. A broken link or anchor fails the build.
docs: $(ALL)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "build/site: the documentation; a running service shows it at /docs/"

# The installable package with the fixtures and the built documentation: build/dist/assay-VERSION-py3-none-any.whl
wheel: docs
	@rm -rf build/lib build/bdist.* build/dist
	@$(PY) -m pip wheel --quiet --no-deps --wheel-dir build/dist .
	@echo "$$(ls build/dist/*.whl): pip install it, then run \`assay up\`"

# Clients of the REST API, generated from its OpenAPI document: build/clients/python, and with npm build/clients/typescript
clients: $(ALL)
	@$(PY) -m tests.client.build

messages: $(ALL)
	@$(PY) -m tests.messages

# Answers the shipped workloads and the worked examples anew, writes the figures of their pages, and prints which first
# choices changed and why. EXAMPLES_ARGS="NAME ..." answers some; EXAMPLES_ARGS=--pages only writes the pages.
EXAMPLES_ARGS ?=
examples: $(ALL)
	@$(PY) -m tests.examples $(EXAMPLES_ARGS)

# Its parts do not wait for each other: make --jobs 2 check
check: style types django layout docs

style: $(ALL)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

types: $(ALL)
	$(VENV)/bin/mypy

django: $(ALL)
	$(ASK) check --fail-level WARNING
	$(ASK) makemigrations --check --dry-run
	$(ASK) spectacular --validate --fail-on-warn --file /dev/null

layout: $(ALL)
	$(PY) -m pytest -q tests/test_layers.py tests/test_units.py tests/test_lock.py

# Scores the engine again: on the files of measured rows where they are, else on the rows of the shipped scorecard
# (fixtures/fidelity). With the files, FIDELITY_ARGS='--write-docs docs/reference/fidelity.md' writes both anew.
MEASUREMENTS ?= $(wildcard $(addprefix ../shared/data/,measured_open.csv h200_vllm_open.csv h200_train_open.csv \
  h200_x4_train_open.csv h200_x4_open.csv))
OWN_MEASUREMENTS := fixtures/measurements/h100x2-serve.csv
fidelity: data
	@$(ASK) fidelity $(patsubst %,--measurements %,$(if $(MEASUREMENTS),$(MEASUREMENTS) $(OWN_MEASUREMENTS))) \
	  $(FIDELITY_ARGS)

# The probes are measured by the Python that has torch and the GPU: make bench BENCH_PYTHON=python3.
BENCH_PYTHON ?= $(PY)
bench: data
	@$(ASK) bench_search
	@$(ASK) bench_advise
	@$(ASK) bench_quick
	@$(ASK) training_layouts
	@$(PY) -m tests.load.bench_peers
	@$(PY) -m tests.load.bench_web
	@$(BENCH_PYTHON) -m tests.measuring.bench_ceiling

soak: $(ALL) data
	@$(PY) -m tests.soak docs/reference/reliability.md
	@$(PY) -m tests.later --day 2027-06-01 --prices -q $$(grep -rl '"frozen"' tests --include='test_*.py')
	@$(PY) -m pytest -q -m soak tests/docs tests/answer/test_live_estimate.py
	@ASSAY_FULL_PROPERTIES=1 $(PY) -m pytest -q -m "hypothesis and not soak"
	@$(PY) -m tests.fuzz_questions --examples
	@$(PY) -m tests.fuzz_questions --count 500 --seed 100000
	@$(PY) -m tests.fuzz_questions --count 1500 --seed 200000 --chips 8
	@$(PY) -m tests.fuzz_questions --count 2000 --seed 300000 --estimate

# Do tests notice a wrong line? In the modules where a mistake costs most: branch coverage, then 100 sampled mutants.
MUTANTS_ARGS ?=
mutants: $(ALL)
	@$(PY) -m tests.mutants --coverage
	@$(PY) -m tests.mutants $(MUTANTS_ARGS)

# The chart library of the pages, from ECharts; needs Node.js. The built file is committed.
CHARTS := advisor/static/advisor/vendor
chart-library:
	@cd .ci/chart-library && npm ci --no-fund --no-audit --ignore-scripts
	@.ci/chart-library/node_modules/.bin/esbuild .ci/chart-library/entry.js --bundle --minify --format=esm \
	  --target=es2020 --legal-comments=none --outfile=$(CHARTS)/echarts.js
	@cd .ci/chart-library/node_modules && cat echarts/LICENSE echarts/licenses/LICENSE-d3 zrender/LICENSE tslib/LICENSE.txt \
	  > $(CURDIR)/$(CHARTS)/echarts.LICENSE.txt
	@cat .ci/chart-library/node_modules/echarts/NOTICE > $(CHARTS)/echarts.NOTICE.txt
	@echo "$(CHARTS)/echarts.js: $$(gzip -9c $(CHARTS)/echarts.js | wc -c) bytes compressed"

# A fresh environment with everything, frozen: public versions only, nothing of this machine.
lock:
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --editable '.[agent,dev,otel,mcp]'
	@{ echo "# Every package of every extra. Made by: make lock"; \
	  build/lock/bin/python -m pip freeze --exclude-editable | sed -E 's/\+[a-z0-9.]+$$//'; } > build/requirements.txt
	@! grep -n '@\|://\|^-' build/requirements.txt
	@mv build/requirements.txt requirements.txt && rm -rf build/lock
	@echo "requirements.txt: $$(grep -c == requirements.txt) packages"

$(CORE): pyproject.toml requirements.txt
	@test -n "$(PYTHON)" || { echo "Assay needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c '$(FITS)' || { echo "Assay needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version)." >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing the control plane into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(ALL): $(CORE)
	@echo "installing the agents' and development extras into $(VENV) ..."
	@$(PIP) --editable '.[agent,dev,otel,mcp]'
	@touch $@

clean:
	rm -rf build var .pytest_cache .mypy_cache .ruff_cache
