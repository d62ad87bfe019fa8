# `make run` and `make test` need Python 3.10 or newer, make and a C compiler; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test check format screenshots clean

run: $(VENV)/.installed
	@$(BIN)/vramtui

test: $(VENV)/.installed-dev check
	$(BIN)/pytest -q -n 2 --dist loadfile

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy vramtui tests benchmarks
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

screenshots: $(VENV)/.installed-dev
	$(BIN)/python screenshots/make.py
	$(BIN)/python screenshots/cast.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt -e '.[dev,trace]' numpy
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/stub/build
