# Everything lives in .venv; `make run` and `make test` set it up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The reference backend. A CPU build is enough; PIP_FLAGS passes options such as an index of such builds to pip.
TORCH ?= torch==2.13.0
PIP_FLAGS ?=
# Two OpenMP threads that spin on two busy cores slow each other down many times over.
export OMP_WAIT_POLICY ?= passive

.PHONY: help env fetch run test lint check-long bench clean

help:
	@echo "make run         serve the default model and drive a small multi-agent workload at it (ONCE=1: stop after the table)"
	@echo "make test        set up, lint and run the tests"
	@echo "make check-long  the slow checks"
	@echo "make bench       every benchmark, quick form"
	@echo "make env         only set up $(VENV)"

env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "belady needs Python 3.11 or newer; name one with make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --editable ".[serve,torch,dev]"
	@touch $@

fetch: env
	$(BIN)/belady fetch

run: fetch
	$(BIN)/belady demo $(if $(ONCE),--once) $(ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint fetch
	$(BIN)/python -m pytest -m "not long" $(ARGS)

check-long: fetch
	$(BIN)/python -m pytest -m long $(ARGS)

bench: fetch
	@for name in limits prefix evict core simspeed serve; do $(BIN)/belady bench $$name --quick || exit 1; done

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache
