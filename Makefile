# Every target first sets up what it needs, once: an environment in .venv, and the jars of Kafka and of Spark's Kafka connector
# in the cache folder. The machine needs Python 3.11 or newer and Java 17.
#
# PYTHON=/path/to/python    the Python that makes the environment
# DEMO_ARGS='--rate 500'    options of the demo, see: dskype demo -h
# PYTEST_ARGS='-k broker'   which tests to run
# PYTEST_FLAGS=             run all tests in one process, instead of those with Spark in two and the rest in two others
# CHAOS_ARGS='--seeds 3 --minutes 10'    options of the fault suite, see: python -m dskype.deploy.lab.chaos -h
# GUARD_ARGS='--against v0.2.0 --rounds 15'    options of the comparison, see: python -m dskype.deploy.lab.guard -h
# ATTACK_SCALE=10           how many times more 'make attack' asks, holds and sends than the tests do
# TOPOLOGY=file.yaml        the topology that 'make topology' runs
# SECONDS_TO_RUN=40         how long it runs; 0: until Ctrl-C
# HA=1                     three brokers and two drivers instead of one, for 'make compose-up' and 'make compose-demo'
# SECURE=1                 Kafka with TLS and passwords, for the same and for 'make compose-down'
# DOCS_PORT=8000          the port of the documents for 'make docs-serve'
# LOCKED=1                  install exactly the versions in requirements.lock, with checksums (SECURITY.md)

SHELL := /bin/sh

# Where Python may not write bytecode beside the sources, it goes to a folder of its own: hundreds of processes start, and each would compile all modules again.
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/bytecode
export PYTHONPYCACHEPREFIX
endif

# Tests keep many small objects. In a virtual machine, pages of 2 MiB instead of 4 KiB save a quarter of their time (decision 0210).
# tests/conftest.py hides these settings from what tests start.
HUGE_PAGES := PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1

.DEFAULT_GOAL := help
.PHONY: help setup run topology docs docs-serve check test lint types prepared lab-test bench-guard relock chaos attack sbom doctor clean compose-up compose-demo compose-down compose-logs

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
INSTALLED := $(VENV)/.installed
TOPOLOGY ?= deploy/topologies/wordcount.yaml
SECONDS_TO_RUN ?= 40
DEMO_ARGS ?=
CHAOS_ARGS ?=
GUARD_ARGS ?=
ATTACK_SCALE ?= 10
PYTEST_FLAGS ?= -n 4
PYTEST_ARGS ?=
LOCKED ?=
DOCS_PORT ?= 8000
HA ?=
COMPOSE = $(if $(SECURE),COMPOSE_FILE="$${COMPOSE_FILE:-deploy/compose/compose.yaml}:deploy/compose/secure.yaml" )docker compose --project-directory deploy/compose --env-file deploy/compose/.env $(if $(HA),--env-file deploy/compose/ha.env) -p dskype

help: ## List the targets
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(INSTALLED) ## Make the environment in .venv, with all tools, fetch the jars and compile the kernels
	@$(BIN)/python -P -m dskype.deploy.cli.prepare

# People see results first: a start without Spark's class archive takes a few seconds more, but writing it takes as long as installing all packages.
run: $(RUNS) ## Publish and subscribe on the world's places, live, on Spark and a Kafka broker of its own
	@$(BIN)/python -P -m dskype.deploy.cli.prepare --first
	@mkdir -p build
	@$(BIN)/dskype demo --picture build/map.svg $(DEMO_ARGS)
	@$(BIN)/python -P -m dskype.deploy.cli.prepare

topology: $(RUNS) ## Run a Flux topology (TOPOLOGY=...), by default the word count
	@$(BIN)/python -P -m dskype.deploy.cli.prepare --first
	@$(BIN)/dskype local $(TOPOLOGY) --local-ttl $(SECONDS_TO_RUN)

docs: $(INSTALLED) ## Build the documents as a site, in build/site
	@$(BIN)/python -P -m sphinx --fail-on-warning --keep-going --quiet --jobs 2 --conf-dir docs --doctree-dir build/doctrees . build/site
	@echo 'open build/site/index.html'

docs-serve: docs ## Show that site at http://127.0.0.1:8000 (DOCS_PORT=...), until Ctrl-C
	@$(BIN)/python -P -m http.server --bind 127.0.0.1 --directory build/site $(DOCS_PORT)

lint: $(INSTALLED) ## Check code and format with ruff
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: $(INSTALLED) ## Check the types of everything but the laboratory with mypy
	@$(BIN)/mypy --no-error-summary

prepared: $(INSTALLED)
	@$(MAKE) --no-print-directory -j 2 setup lint types

check: prepared ## Run lint, types and the fast tests: no Spark, no Kafka, no long schedules, no laboratory
	@$(HUGE_PAGES) $(BIN)/python -m pytest -q $(PYTEST_FLAGS) -m fast $(PYTEST_ARGS)

test: prepared ## Run all tests, after lint and types; at the end stand the slowest tests and files, and what each tier took
	@$(HUGE_PAGES) $(BIN)/python -m pytest $(PYTEST_FLAGS) --times $(PYTEST_ARGS) || { code=$$?; \
	  if [ $$code -eq 5 ]; then echo "error: no test was run; expected at least one, given: PYTEST_ARGS='$(PYTEST_ARGS)'" >&2; fi; exit $$code; }

lab-test: $(INSTALLED) ## Run the tests of the laboratory only: indexes and experiments of papers, benchmarks
	@$(HUGE_PAGES) $(BIN)/python -m pytest -q $(PYTEST_FLAGS) --times -m lab $(PYTEST_ARGS)

bench-guard: setup ## Compare the speed of this state with an earlier one, in turn, in one run (GUARD_ARGS='--against REVISION')
	@$(BIN)/python -P -m dskype.deploy.lab.guard $(GUARD_ARGS)

# Only what setup.cfg asks for changes: uv keeps the other versions of the lock.
relock: $(INSTALLED) ## Write the locks of Python packages and of jars again, after a change of setup.cfg or of Kafka's version
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv >= 0.9, < 1'
	@echo 'setuptools>=77' | $(BIN)/uv pip compile setup.cfg - --extra spark --extra demo --extra test --extra check --extra docs --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet -o requirements.lock > /dev/null
	@$(BIN)/python -P -m dskype.deploy.lab.relock
	@echo 'now run: make test'

chaos: setup ## Break processes, broker, clock and disk while topologies run, and check the output (CHAOS_ARGS=...)
	@$(BIN)/python -P -m dskype.deploy.lab.chaos $(CHAOS_ARGS)

attack: setup ## Attack running servers as a stranger would, and print what it costs them (ATTACK_SCALE=1: as short as in the tests)
	@DSKYPE_ATTACK_SCALE=$(ATTACK_SCALE) $(BIN)/python -m pytest -q tests/security/attack $(PYTEST_ARGS)

sbom: $(INSTALLED) ## Write build/sbom.cdx.json, which names everything of others that is locked or vendored (CycloneDX)
	@mkdir -p build && $(BIN)/python -P -m dskype.deploy.lab.sbom build/sbom.cdx.json && echo 'written: build/sbom.cdx.json'

doctor: $(RUNS) ## Check Java, Python, jars, folders, ports and the broker
	@$(BIN)/dskype doctor

compose-up: ## Build the image, and start Kafka, Spark, DSkype, Prometheus and Grafana in containers (HA=1: three brokers, two drivers)
	@$(COMPOSE) up --build --detach --wait

compose-demo: compose-up ## Publish the world's places to the topology in the containers, and check every result (DEMO_ARGS=...)
	@$(COMPOSE) exec -T topology sh -c 'exec dskype demo --bootstrap-servers "$$DSKYPE_BOOTSTRAP_SERVERS" "$$@"' demo $(DEMO_ARGS)

compose-down: ## Stop the containers; their volumes stay (docker volume ls)
	@$(COMPOSE) --profile ha down

compose-logs: ## Follow the logs of the containers
	@$(COMPOSE) --profile ha logs --follow

clean: ## Remove the environment and build output; the cache folder with the jars stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# To run needs half of the packages; tools for tests, checks and documents come when a target needs them.
$(RUNS): EXTRAS := spark,demo,ui
$(INSTALLED): EXTRAS := spark,demo,ui,test,check,docs

# The first Python that is new enough makes the environment. Without its stamp, .runs or .installed, it is incomplete, and installed again.
# PySpark comes as source, and pip builds a wheel of it: to compress its 450 MB of jars again would take as long as everything else about it.
$(RUNS) $(INSTALLED): setup.cfg pyproject.toml requirements.lock
	@set -e; \
	if [ -z "$$JAVA_HOME" ] && ! command -v java >/dev/null 2>&1; then \
	  echo "error: expected Java 17 or newer, given: no java on PATH and no JAVA_HOME" >&2; \
	  echo "  fix: install it, for example: apt-get install openjdk-17-jre-headless" >&2; exit 1; fi; \
	found=; seen=; \
	for p in $(PYTHON) $(if $(PYTHON),,python3.11 python3 python3.12 python3.13); do \
	  command -v "$$p" >/dev/null 2>&1 || continue; \
	  v=`"$$p" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' 2>/dev/null` && { found=$$p; break; } || seen="$$seen $$p ($$v)"; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "error: expected Python 3.11 or newer, given:$${seen:- no python3 on PATH}" >&2; \
	  echo "  fix: install python3.11, or name one: make PYTHON=/path/to/python" >&2; exit 1; fi; \
	if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "error: $$found has no venv module (or no ensurepip, which it needs)" >&2; \
	  echo "  fix: apt-get install python$$v-venv" >&2; exit 1; fi; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  echo "making $(VENV) with $$found ($$v)"; rm -rf $(VENV); "$$found" -m venv $(VENV); fi; \
	echo "installing dskype and what it needs into $(VENV)"; began=`date +%s`; \
	printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/wheels.cfg; export DIST_EXTRA_CONFIG="$$PWD/$(VENV)/wheels.cfg"; \
	pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517"; \
	if [ -n "$(LOCKED)" ]; then \
	  sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > $(VENV)/build.lock; \
	  $$pip --require-hashes -r $(VENV)/build.lock; \
	  $$pip --require-hashes --no-build-isolation -r requirements.lock; \
	  $$pip --no-deps --no-build-isolation -e .; \
	else $$pip -e '.[$(EXTRAS)]'; fi; \
	echo "installed after $$((`date +%s` - began)) s"; touch $(RUNS) $(if $(LOCKED),$(INSTALLED),$@)
