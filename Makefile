# Two commands for a newcomer: `make demo` and `make test`. Only Python 3.11+, venv and make needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
REPORT := out/report.html
CODE := src tests benchmarks $(wildcard docs/*.py) scripts

.PHONY: help demo test lint format lock readme picture clean

help:
	@echo "make demo    set everything up and run the main job on a shipped example"
	@echo "make test    set up what the tests need; formatter, linter, strict types, every test"
	@echo "make lint    formatter, linter and strict types alone"
	@echo "make format  let the formatter and the linter mend what they can"
	@echo "make lock    compute requirements/*.lock anew from requirements/*.in"
	@echo "make readme  write the program's own output into README.md and docs anew"
	@echo "make picture take docs/images/report.png anew (needs chromium)"
	@echo "make clean   remove what the above made"

demo: $(VENV)/.core
	@echo "== chipshift assess, on torchtitan's Llama-3.1-8B job"
	$(BIN)/chipshift assess examples/llama3-8b-torchtitan.toml --on 'h100*128' \
	  --to v6e --to v7x --html $(REPORT)
	@echo "== report: $(abspath $(REPORT))"

test: $(VENV)/.test lint
	@echo "== tests (those skipped are named at the end, each with its reason)"
	$(BIN)/python -m pytest -n 2 -rs

lint: $(VENV)/.lint
	@echo "== formatter, linter, strict types"
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# Each stage leaves a file when it is done, so that a second run has nothing to do and one that
# was interrupted starts again. A virtual environment without a working pip is made anew.
$(VENV)/.core: requirements/core.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "chipshift needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== setting up $(VENV) (locked dependencies)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -r requirements/core.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.lint: requirements/lint.lock $(VENV)/.core
	@echo "== installing linter and type checker"
	$(PIP) install -r requirements/lint.lock
	@touch $@

$(VENV)/.test: requirements/test.lock $(VENV)/.lint
	@echo "== installing what the tests need (compilers and reference models among it: minutes)"
	$(PIP) install -r requirements/test.lock
	@touch $@

# torch is locked without its build's suffix (+cpu), so that a machine whose index has only the
# default build takes that one, with the CUDA libraries it then asks for by itself.
LOCK := $(VENV)/bin/pip-compile -q --no-emit-index-url --no-emit-find-links --no-header \
  --no-annotate --strip-extras --allow-unsafe
lock: $(VENV)/.core
	$(PIP) install pip-tools
	cd requirements && for room in core lint test; do ../$(LOCK) -o $$room.lock $$room.in; done
	sed -i 's/+cpu$$//' requirements/test.lock

readme: $(VENV)/.core
	$(BIN)/python docs/blocks.py

picture: $(VENV)/.test
	$(BIN)/python scripts/take_picture.py

clean:
	rm -rf $(VENV) out build dist src/*.egg-info

.PHONY: verify-compile
verify-compile: $(VENV)/.test
	@echo "== the cases of benchmarks/data/compile_cases.toml through the compilers (half an hour on two cores)"
	PYTHONPATH=src $(BIN)/python benchmarks/verify_compile.py
	PYTHONPATH=src $(BIN)/python benchmarks/compare_compile.py
	PYTHONPATH=src $(BIN)/python benchmarks/compare_compile.py --collectives
	PYTHONPATH=src $(BIN)/python benchmarks/time_compile.py
