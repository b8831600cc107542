# make grade              install into .venv and grade the untouched exercise
# make test               run every test
# make lint               ruff and mypy
#
# make PYTHON=python3.12 …    another interpreter (3.11 or newer)
# make VENV=~/envs/torch …    an environment you already have; its torch (2.10 or newer, any build) is kept
# make venv TORCH="torch torchvision --index-url ADDRESS"
#                         the small CPU build: ADDRESS is the one shown for "CPU" on PyTorch's "Get started" page

SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c "$(SUPPORTED)" 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
TORCH ?=
EXERCISE ?= exercises/dataparallel
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.multigpu-gym
INSTALLED_DEV := $(VENV)/.multigpu-gym-dev

.PHONY: help venv grade test lint format clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

venv: $(INSTALLED)

# Grading that worked ends well here whatever the verdict: 1 means "not all passed".
grade: $(INSTALLED)
	@$(BIN)/grade $(EXERCISE) || [ $$? -eq 1 ]

test: $(INSTALLED_DEV)
	@$(BIN)/python -m pytest -n $(WORKERS)

lint: $(INSTALLED_DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(INSTALLED_DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python …" >&2; exit 1; }
	@$(PYTHON) -c "$(SUPPORTED)" || { echo "$(PYTHON) is older than Python 3.11." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV); where torch is not there yet this is a large download."
	@$(if $(TORCH),$(PIP) install $(TORCH))
	@$(PIP) install --editable .
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@$(PIP) install --editable '.[dev]'
	@touch $@
