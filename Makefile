# Metrale Lab. `make lab` sets everything up and opens the notebooks; `make test` is what CI runs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Machines with an NVIDIA driver take the torch that fits it; all others the pinned CPU version.
CONSTRAINTS ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,-c constraints.txt)
# Tests of the packages whose coverage `make test` holds, and these packages.
COVERING := tests/cache tests/scheduler tests/trace tests/harness
COVERED := cache scheduler trace/checker
OPEN ?= $(if $(DISPLAY)$(WAYLAND_DISPLAY),1,0)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: lab test lint types layers unit js notebooks browser exhaustive nightly soak planted coverage
.PHONY: mutants bench clean

lab: $(VENV)/.lab
	$(BIN)/metrale-lab fetch smollm2
	mkdir -p build
	@echo "Running the quickstart: about a minute."
	$(BIN)/metrale-lab notebooks run notebooks/00_quickstart.ipynb --html build/quickstart.html --artifacts build/notebooks
	@echo
	@echo "The quickstart has run: open build/quickstart.html to see it."
	@echo "To work with it:        $(BIN)/metrale-lab lab"
	@if [ "$(OPEN)" = 1 ]; then $(BIN)/metrale-lab lab; fi

test: lint types layers unit coverage js notebooks browser
	@echo "make test: everything passed"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

layers: $(VENV)/.test
	$(BIN)/lint-imports

unit: $(VENV)/.test
	$(BIN)/metrale-lab fetch smollm2
	$(BIN)/python -m pytest -m "not browser and not notebook" --hypothesis-profile=ci \
		$(addprefix --ignore=,$(COVERING))

# The rest of the unit tests, and which lines and branches of each covered package they reach.
coverage: $(VENV)/.test
	$(BIN)/python -m pytest --hypothesis-profile=ci $(COVERING) --cov --cov-report=
	$(foreach part,$(COVERED),$(BIN)/coverage report --include='metrale_lab/$(part)/*' -m --skip-covered &&) true

js:
	@if command -v node >/dev/null; then node --test tests/js/*.test.mjs; \
	elif [ "$$CI" = true ]; then echo "node is missing"; exit 1; \
	else echo "skipped: the JavaScript tests need node"; fi

notebooks: $(VENV)/.test
	$(BIN)/python -m pytest -m notebook

browser: $(VENV)/.test
	$(BIN)/python -m pytest -m browser

exhaustive: $(VENV)/.test
	METRALE_EXHAUSTIVE=1 $(BIN)/python -m pytest tests/first_light

# 100,000 examples over all state machines: about half an hour.
nightly: $(VENV)/.test
	$(BIN)/python -m pytest --hypothesis-profile=nightly --timeout=0 \
		tests/cache/test_pool_machine.py tests/cache/test_tree_machine.py \
		tests/cache/test_allocator_machine.py tests/cache/test_slots_machine.py \
		tests/cache/test_snapshots_machine.py tests/cache/test_adapter_slots_machine.py \
		tests/scheduler/test_machine.py

# 20,000 requests with cancellations through one process.
soak: $(VENV)/.test
	METRALE_SOAK=20000 $(BIN)/python -m pytest --timeout=0 tests/test_soak.py

# Each planted fault in a copy of the package: some test has to fail. A few minutes.
planted: $(VENV)/.test
	$(BIN)/python -m tests.planted.run

# Small changes to cache and router: some test has to fail. About an hour; FILES=... for some.
mutants: $(VENV)/.test
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e ".[mutants]"
	$(BIN)/python -m tests.mutants.run $(FILES)

bench: $(VENV)/.test
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/adapters.py
	$(BIN)/python benchmarks/gil.py
	$(BIN)/python benchmarks/busy_cell.py
	$(BIN)/python benchmarks/recorder.py

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.lab: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing: about 0.5 GB of downloads with PyTorch's CPU build, several GB with a CUDA build."
	@echo "(On a machine without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu keeps it small.)"
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install -q --retries 1 --index-url $(TORCH_INDEX) $(CONSTRAINTS) torch)
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.lab
	$(BIN)/python -m pip install -q $(CONSTRAINTS) -e ".[test]"
	@touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
