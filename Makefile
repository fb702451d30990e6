# Two commands for a fresh machine: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := corpus/memory/global-out-of-bounds/bad_starter_oob

.PHONY: demo test fuzz bench catalogue calibrate clean

demo: $(VENV)/.runtime
	@echo '$$ cuwhy diagnose --source $(DEMO) $(DEMO)/evidence.cuwhy'
	@$(BIN)/cuwhy diagnose --source $(DEMO) $(DEMO)/evidence.cuwhy

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest

fuzz: $(VENV)/.fuzz
	$(BIN)/python fuzz/make_seeds.py $(VENV)/fuzz-seeds
	$(BIN)/python fuzz/fuzz_readers.py -max_total_time=60 -rss_limit_mb=2048 -timeout=20 $(VENV)/fuzz-seeds

# DUMPS: a folder with raw core dumps.
bench: $(VENV)/.runtime
	$(BIN)/python bench/bench_diagnose.py $(DUMPS)

# The order matters: the catalogue prints the confidences.
calibrate: $(VENV)/.test
	$(BIN)/python scripts/calibrate.py
	$(BIN)/python scripts/catalogue.py

catalogue: $(VENV)/.test
	$(BIN)/python scripts/catalogue.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check -e '.[sass]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check -e '.[sass,test]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.fuzz: pyproject.toml | $(VENV)/.runtime
	$(BIN)/pip install -q --disable-pip-version-check 'atheris>=2.3,<4'
	@touch $@
