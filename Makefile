# make run        what is missing of the set-up, then the page at the address it prints
# make setup      .venv, the default model, a browser for the page's tests
# make test       what is missing of that, then linter, type checker and test suite
# make test-all   the same with the long tests
# make bench      measure the methods on this CPU
# make gpu-check  tests marked gpu and the benchmark, on a machine with a CUDA device
# make format     let ruff rewrite the sources

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
SUITE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=25
MEASURE := $(BIN)/python -m viasd_core bench --preset tiny --methods ar,sd,via-sd \
	--baselines hf,hf-lookup --data benchmarks/prompts.jsonl --limit 12 --max-new-tokens 96 --repeats 3 \
	--tracing-cost

.PHONY: run setup model browser lint test test-all bench gpu-check format
.DELETE_ON_ERROR:

run: $(VENV)/installed model
	$(BIN)/python app.py $(ARGS)

setup: $(VENV)/installed model browser

$(VENV)/installed: requirements.txt requirements-dev.txt constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-dev.txt -c constraints.txt
	touch $@

model: $(VENV)/installed
	@$(BIN)/python scripts/fetch_models.py tiny

browser: $(VENV)/installed
	@sh scripts/install_browser.sh $(BIN)/python

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(SUITE)

test-all: setup lint
	$(SUITE) -m "not gpu"

bench: setup
	$(MEASURE) --out benchmarks/tiny-cpu.json

gpu-check: $(VENV)/installed model
	@$(BIN)/python -c 'import sys, torch; torch.cuda.is_available() or sys.exit("error: make gpu-check needs a CUDA device, and torch sees none on this machine")'
	$(BIN)/python -m pytest -m gpu
	mkdir -p benchmarks/gpu
	$(MEASURE) --device cuda --out benchmarks/gpu/tiny.json

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
