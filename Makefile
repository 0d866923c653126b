# `make run` and `make test` do all the set-up there is; everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Many tests wait for other processes, so three workers on two cores finish sooner than two.
JOBS ?= 3
# The tests start hundreds of processes; without kept bytecode each of them compiles the program anew.
test test-all chaos corpus fuzz check: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup run test test-all chaos corpus fuzz check audit format screenshots bench lock clean
help: ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 10

run: .venv/ready ## start the product on the examples: Ctrl-C stops it, ./gnomon.db keeps what happened
	GNOMON_UI__PRINT_LINK=true $(BIN)/gnomon up --jobs examples/jobs.yaml --jobs examples/demo.yaml --import examples.company $(ARGS)

test: .venv/ready-to-test ## run the tests; at most ten minutes on two cores
	$(BIN)/pytest -n $(JOBS) -m "not thorough" $(ARGS)

test-all: .venv/ready-to-test ## run every test, every fault, and five times as many random examples
	GNOMON_EXAMPLES=5 $(BIN)/pytest -n $(JOBS) -o timeout=300 $(ARGS)

chaos: .venv/ready-to-test ## inject every fault of the table into a whole fleet
	$(BIN)/pytest -n 2 tests/chaos $(ARGS)

# Tests whose examples are texts of others: the readers of everything, then schedules, jobs and imported definitions.
FUZZED := tests/security/test_fuzzing.py tests/core/cron tests/core/english tests/core/importers tests/core/jobs \
	tests/core/test_schedule_parser.py tests/adapters/test_manifests.py tests/api/test_hostile_requests.py

fuzz: .venv/ready-to-test ## read random input until one fails: Ctrl-C stops it
	@while GNOMON_FUZZ=1 $(BIN)/pytest -q -n $(JOBS) -o timeout=3600 $(FUZZED) $(ARGS); do :; done

corpus: .venv/ready-to-test ## list the hostile corpus: every attack, and the tests that show what holds
	PYTHONPATH=tests $(BIN)/python -m security.corpus

check: .venv/ready-to-test ## check format, lint, types, structure, pins, and advisories where the index offers them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py tests/test_dependencies.py
	@PYTHONPATH=tests $(BIN)/python -m support.advisories

audit: .venv/ready-to-test ## ask the advisory service about every pin; fails if it does not answer
	@PYTHONPATH=tests $(BIN)/python -m support.advisories --required

format: .venv/ready-to-test ## format the files and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

screenshots: .venv/ready-to-test ## write the pictures of the dashboard to docs/images
	PYTHONPATH=.:tests $(BIN)/python -m support.screenshots

bench: .venv/ready-to-bench .venv/peers/ready ## measure ourselves beside our peers
	$(BIN)/python bench/cron.py
	$(BIN)/python bench/storm.py
	$(BIN)/python bench/throughput.py
	$(BIN)/python bench/drift.py
	$(BIN)/python bench/footprint.py
	$(BIN)/python bench/dag.py
	$(BIN)/python bench/api.py
	$(BIN)/python bench/ui_pages.py
	$(BIN)/python bench/commands.py
	$(BIN)/python bench/policy.py
	$(BIN)/python bench/output.py
	$(BIN)/python bench/hostile.py
	$(BIN)/python bench/cluster.py
	$(BIN)/python bench/declarative.py
	$(BIN)/python bench/announce.py
	$(BIN)/python bench/agents.py

setup: .venv/ready-to-test ## make the environment with everything for development

.venv/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable .
	@touch $@

.venv/ready-to-test: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable '.[test]'
	@PYTHONPATH=tests $(BIN)/python -m support.browser_files
	@touch $@

.venv/ready-to-bench: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable '.[bench]'
	@touch $@

# Peers that would pull half the world into our own environment have one of their own.
.venv/peers/ready: bench/peers/requirements.txt
	$(PYTHON) -m venv .venv/peers
	.venv/peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement bench/peers/requirements.txt
	@touch $@

lock: ## pin the newest versions that fit pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --all-extras --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --python-version 3.11 pyproject.toml --output-file requirements.txt

clean: ## remove what was made
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
