# The verbs of this project. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install check format test bench lock clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv from the lock file, with runherd in it

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("runherd needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

check: install ## the fast part: format, lint, types, layers, quick tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@if command -v gofmt >/dev/null; then test -z "$$(gofmt -l tests | tee /dev/stderr)" || { echo "run gofmt -w on these files"; exit 1; }; fi
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -m "not control_plane and not slow"

format: install ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check ## everything: check, then the slow tests and those on a real control plane
	$(BIN)/python -m tests.controlplane build
	$(BIN)/python -m pytest -m "control_plane or slow"

bench: install ## measure; prints tables, writes bench/results/*.json
	$(BIN)/python -m bench

lock: ## write the lock files anew from pyproject.toml (needs uv)
	uv pip compile --quiet pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements.lock
	uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements-dev.lock

clean: ## remove what install and the checks made in this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
