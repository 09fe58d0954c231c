# Two commands for a newcomer: `make demo` and `make test`. Only Python 3.11+, venv and make needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test lint format lock clean

demo: $(VENV)/.core
	@echo "== chipshift assess, on torchtitan's Llama-3.1-8B job"
	$(BIN)/chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' --to v6e --to v7x --html out/report.html

test: $(VENV)/.test lint
	@echo "== tests"
	$(BIN)/python -m pytest -n 2 -rs

lint: $(VENV)/.lint
	@echo "== formatter, linter, strict types"
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

$(VENV)/.core: requirements/core.lock pyproject.toml
	@echo "== setting up $(VENV) (locked dependencies)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements/core.lock
	$(PIP) install --no-deps --no-build-isolation -e . 
	@touch $@

$(VENV)/.lint: requirements/lint.lock $(VENV)/.core
	@echo "== installing linter and type checker"
	$(PIP) install -r requirements/lint.lock
	@touch $@

$(VENV)/.test: requirements/test.lock $(VENV)/.lint
	@echo "== installing what the tests need (the compilers and reference models among it)"
	$(PIP) install -r requirements/test.lock
	@touch $@

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
