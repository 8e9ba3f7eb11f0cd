# Needs Python >= 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
BENCH_STAMP := .venv/.installed-bench

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help venv test test-slow lint format demo docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## make .venv and install foretell with its development tools

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretell needs Python >= 3.11 (make PYTHON=...)")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

test: lint ## lint, types and the quick tests
	$(BIN)/python -m pytest -n auto

test-slow: lint ## the same with the slow tests
	$(BIN)/python -m pytest -n auto -m 'slow or not slow'

lint: $(STAMP) ## ruff and pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(STAMP) ## format and fix what ruff can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(STAMP) ## compile, verify and time a small model built on the spot
	$(BIN)/python examples/demo.py

docs: $(STAMP) ## write docs/operators.md again
	$(BIN)/python docs/generate_operators.py

bench: $(BENCH_STAMP) ## race the other engines and write docs/benchmarks.md; QUICK=1 prints a small table in 3 minutes
ifdef QUICK
	$(BIN)/python -m benchmarks ops models --quick
else
	$(BIN)/python -m benchmarks ops models memory compile --json docs/benchmarks/results.json
	$(BIN)/python -m benchmarks page
endif

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

clean: ## remove .venv, caches and builds
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
