# `make run` needs Python 3.10 or newer and make; `make test` a C compiler as well. Everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The tests start some hundred processes; each would compile the program again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run help test tests test-fast test-torch test-dry-runs test-refusing test-ordinary corpus check lint types format audit screenshots docs clean

run: $(VENV)/.installed ## Open the dashboard of this machine's GPUs, or the demo if it has none
	@$(BIN)/vramtui $$($(BIN)/vramtui ps >/dev/null 2>&1 || echo --demo)

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

# In a new checkout mypy takes 20 seconds of one core, while the tests wait for processes and clocks.
test: $(VENV)/.installed-dev ## All checks and all tests (some 10 minutes on two cores)
	@$(MAKE) --no-print-directory --jobs 2 lint $(VENV)/.collected
	@$(MAKE) --no-print-directory --jobs 2 types tests

# In a new checkout each worker would compile the tests for itself; lint leaves a core free.
$(VENV)/.collected: | $(VENV)/.installed-dev
	@$(BIN)/pytest -q -n 0 --collect-only > /dev/null 2>&1 || true # the run of the tests reports errors
	@touch $@

# On a busy machine the wait for a clock or another process can be too short, so tests that failed run once more.
PYTEST = $(if $(PRELOAD),LD_PRELOAD=$(PRELOAD)) $(BIN)/pytest -q
AGAIN = { echo "These failed in the parallel run; they run once more by themselves:"; \
	$(PYTEST) --last-failed --last-failed-no-failures none; }

# Five workers on two cores: a test waits for a clock or another process in a third of its time.
tests: $(VENV)/.installed-dev ## All tests
	$(PYTEST) -n 5 --dist loadfile --no-loadscope-reorder || $(AGAIN)

test-fast: $(VENV)/.installed-dev ## A few cases of each test; no terminal, no torch (about a minute on two cores)
	$(BIN)/pytest -q -n 2 --dist loadfile --fast

test-torch: $(VENV)/.installed-dev ## The tests that need torch
	$(BIN)/pytest -q -n 2 --dist loadfile -m torch

DRY_RUN_TESTS ?= tests/dryrun tests/driver tests/cli/test_dry_run_command.py tests/cli/test_dry_run_cuda.py
REFUSING := \#include <errno.h>\nint unshare(int flags) { (void)flags; errno = EPERM; return -1; }\n
ORDINARY := --reuid=12345 --regid=12345 --clear-groups

test-dry-runs: $(VENV)/.installed-dev ## The tests of dry runs
	$(PYTEST) -n 2 --dist loadfile $(DRY_RUN_TESTS) || $(AGAIN)

# As in a container without namespaces.
test-refusing: $(VENV)/.installed-dev ## The tests of dry runs where the kernel gives no namespace
	printf '$(REFUSING)' | $(CC) -shared -fPIC -x c - -o $(VENV)/refusing.so
	@$(MAKE) --no-print-directory test-dry-runs PRELOAD=$(CURDIR)/$(VENV)/refusing.so

# In a clone as in /scratch/PROJECT/me: the folder above is root's, so an overlay cannot copy it. PYTHON is one of the system's.
test-ordinary: ## The tests of dry runs as uid 12345 below a folder of root's (needs root)
	place=$$(mktemp -d /tmp/XXX) && trap "rm -rf $$place" EXIT && chmod 755 $$place && \
		git clone -q . $$place/me/clone && mkdir $$place/me/tmp && chown -R 12345:12345 $$place/me && cd $$place/me/clone && \
		setpriv $(ORDINARY) env HOME=$$place/me TMPDIR=$$place/me/tmp $(MAKE) test-dry-runs PYTHON=$(PYTHON)

# CORPUS has clones of the scripts' repositories; SCRIPTS_PYTHON is a Python with their packages, NUMPY1 a folder with the older
# NumPy that some of them need.
CORPUS ?= ../corpus

corpus: $(VENV)/.installed-dev ## Dry-run the public scripts of CORPUS; fails if too few are answered or right
	$(BIN)/python -m benchmarks.scripts $(CORPUS) $(if $(SCRIPTS_PYTHON),--python $(SCRIPTS_PYTHON)) \
		$(if $(NUMPY1),--numpy1 $(NUMPY1)) $(if $(ENGINE),--engine $(ENGINE))

check: lint types ## Format, lint, types and layers

lint: $(VENV)/.installed-dev ## Format, lint and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev ## Types
	nice $(BIN)/mypy vramtui tests benchmarks screenshots packaging

format: $(VENV)/.installed-dev ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Without access to pip-audit's index: make audit ADVISORIES=a checkout of github.com/pypa/advisory-database
audit: $(VENV)/.installed ## Look for known vulnerabilities in the installed packages
	@$(BIN)/python packaging/audit.py $(if $(ADVISORIES),--advisories $(ADVISORIES),--with $(VENV)/audit)

screenshots: $(VENV)/.installed-dev ## Make the README's pictures from the demo
	$(BIN)/python screenshots/make.py
	$(BIN)/python screenshots/cast.py

docs: $(VENV)/.installed-docs ## Build the documentation into site/, checking its links
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[dev,torch,hf]' accelerate numpy
	@# pip compiles on one core; the tests import only a few of transformers' models.
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/|/transformers/models/' $(VENV)/lib || true
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	@touch $@

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/stub/build dist site
