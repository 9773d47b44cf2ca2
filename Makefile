# Every target sets up .venv by itself where it is missing. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
BOOK := build/book
NOTEBOOKS := notebooks
SERIES := $(sort $(wildcard notebooks/[0-9]*.ipynb))
SOLUTIONS := $(sort $(wildcard notebooks/solutions/[0-9]*.ipynb))
ALL := $(SERIES) $(SOLUTIONS)
MODEL ?= runs/sample-small
TRAIN_SMALL = $(BIN)/transformer-lib train $(if $(wildcard runs/sample-small/training_state.pt),--resume)
# Without stored widget state, pages show each widget's static output, and load no widget manager from the web.
NBCONVERT := $(BIN)/jupyter nbconvert --log-level ERROR --ExecutePreprocessor.store_widget_state=False \
	--ExecutePreprocessor.record_timing=False
# A run leaves alone what an earlier one has stored of widgets, or JupyterLab: keep of a notebook's metadata only these.
CLEAN := --ClearMetadataPreprocessor.enabled=True --ClearMetadataPreprocessor.clear_cell_metadata=False \
	"--ClearMetadataPreprocessor.preserve_nb_metadata_mask={'accelerator', 'kernelspec', 'language_info'}"
# Notebooks run in other folders, where a relative path would lead elsewhere. The library itself knows what ~ means.
# ($(abspath) would take a path with a space in it for two.)
ifneq ($(TRANSFORMER_LIB_DATA),)
ifeq ($(filter /% ~%,$(firstword $(TRANSFORMER_LIB_DATA))),)
override TRANSFORMER_LIB_DATA := $(CURDIR)/$(TRANSFORMER_LIB_DATA)
endif
export TRANSFORMER_LIB_DATA
endif

.PHONY: help notebooks book check test test-all lab train bench bench-gpu lint outputs repository clean

help:
	@echo "make notebooks   run the whole series on the sample corpus; a book of it in build/notebooks/book/"
	@echo "make book        the series as a book, from the outputs stored in the notebooks, in build/book/"
	@echo "make check       run the library's own tests, but for those that start processes"
	@echo "make test        run the tests: ruff, pytest, and the notebooks through nbval"
	@echo "make test-all    what is slow, too: browsers, thousands of broken files, a stand-in for GPUs, and so on; hours"
	@echo "make lab         open the series in JupyterLab"
	@echo "make train       train, score and try a small model; a picture of its attention in build/"
	@echo "make bench       measure how fast training and translation are, on Multi30k; JSON in build/"
	@echo "make bench-gpu   tests and measurements on a GPU, in eight minutes; run it again to continue; JSON in build/"
	@echo "make lint        format the code and fix what ruff can fix"
	@echo "make outputs     run the series in full, on Multi30k, and store the outputs in the notebooks; one of them with"
	@echo "                 ALL=notebooks/03_masks.ipynb"
	@echo "make repository URL=https://github.com/OWNER/NAME   put your repository's address wherever it is named"
	@echo "make clean       remove build/ and .venv/"

# uv installs faster than pip, where it is there; `make UV= …` does without it.
UV ?= $(shell command -v uv)
INSTALL = $(if $(UV),$(UV) pip install --python $(BIN)/python,$(BIN)/python -m pip install) --constraint constraints.txt
# PyPI's PyTorch for Linux brings CUDA: several GB. Where no NVIDIA GPU is seen, PyTorch's own build for CPUs is taken,
# of 0.2 GB. `make TORCH=pypi …` takes PyPI's, `make TORCH=cpu …` the other, whatever is seen.
TORCH ?= $(if $(filter Linux,$(shell uname)),$(if $(shell command -v nvidia-smi),pypi,cpu),pypi)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.12 …')"
	@echo "setting up .venv, once: $(if $(filter cpu,$(TORCH)),0.6,several) GB to download"
	$(PYTHON) -m venv .venv
ifeq ($(TORCH),cpu)
	PIP_RETRIES=1 $(INSTALL) --no-deps --index-url https://download.pytorch.org/whl/cpu torch || \
		echo "PyTorch's build for CPUs is out of reach: PyPI's takes its place, with CUDA"
endif
	$(INSTALL) --editable ".[notebooks,book,test]"
	@touch $@

# The notebooks run as copies in build/, so that neither they nor the models they train get mixed up with yours: two at a
# time, of one thread each, the longest first, but 06 before all: 07 to 09 take the model that it trains.
FIRST := 06_training 10_from_here_to_gpt 17_the_clinic 13_what_is_a_change_worth 08_looking_inside 00_quick_tour 14_fast
LONGEST := $(patsubst %,notebooks/%.ipynb,$(FIRST))
RUNS = $(patsubst notebooks/%.ipynb,$(1)/%.run,$(2))

notebooks: $(READY)
	@mkdir -p build/notebooks && rm -rf build/notebooks/runs && cp $(SERIES) build/notebooks
	@echo "running $(words $(SERIES)) notebooks on the sample corpus, two at a time …"
	@began=$$(date +%s); OMP_NUM_THREADS=1 TRANSFORMER_LIB_CORPUS=sample $(MAKE) --no-print-directory --jobs 2 \
		$(call RUNS,build/notebooks,$(LONGEST) $(filter-out $(LONGEST),$(SERIES))) && \
		printf '%-32s %4d s\n' "in all" $$(($$(date +%s) - began))
	@$(MAKE) --no-print-directory book NOTEBOOKS=build/notebooks BOOK=build/notebooks/book
	@echo "or run them yourself: make lab, and begin with 00_quick_tour"

$(patsubst %,build/notebooks/%.run,07_translating 08_looking_inside 09_bleu): build/notebooks/06_training.run

# Run a notebook in place, and say how long it took; if it fails, show what it said.
build/%.run:
	@started=$$(date +%s); \
	messages=$$($(NBCONVERT) --to notebook --inplace --execute build/$*.ipynb 2>&1) || \
		{ printf '%s\n\n%s failed: its message is above\n' "$$messages" build/$*.ipynb; exit 1; }; \
	printf '%-32s %4d s\n' $(*F) $$(($$(date +%s) - started))

# Sphinx reads a copy: the book's own pages at the top, what they link to beneath, with the originals' times.
book: $(READY)
	@echo "building the book …"
	@rm -rf $(addprefix $(BOOK)-source/,*.md api assets benchmarks data notebooks)
	@mkdir -p $(addprefix $(BOOK)-source/,assets benchmarks/results data notebooks) && cp -p book/*.md $(BOOK)-source
	@cp -p transformer_lib/page/body.html $(BOOK)-source/translator.html
	@cp -pR assets/figures assets/*.svg assets/*.md $(BOOK)-source/assets && cp -p data/README.md $(BOOK)-source/data
	@cp -p benchmarks/results/*.json $(BOOK)-source/benchmarks/results
	@cp -pR $(NOTEBOOKS)/[0-9]*.ipynb $(wildcard notebooks/solutions) $(BOOK)-source/notebooks
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir book $(BOOK)-source $(BOOK) \
		|| (rm -rf $(BOOK) && false)  # or the next build would skip the pages that have not changed
	@PYTHONPATH=. $(BIN)/python book/write_weights.py $(BOOK)/translator
	@echo "the book is ready: open $(BOOK)/index.html"

# Two processes of one thread each: with more threads, the two would wait for each other's. What takes longest comes
# first, or one process would be left with it in the end.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: $(READY)
	$(PYTEST) -p no:nbval -m "not slow and not processes" --ignore tests/project tests/test_trainer.py tests
	@echo "the library works. Before a pull request: make test"

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	TRANSFORMER_LIB_FAST_DEV_RUN=1 $(PYTEST) --durations 10 --nbval-lax tests/test_trainer.py $(SERIES) tests
	@echo "everything works here. To read and run the notebooks: make lab"

test-all: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	TRANSFORMER_LIB_FAST_DEV_RUN=1 $(PYTEST) -m "slow or not slow" --nbval-lax notebooks tests
	$(BIN)/python tests/project/test_devices.py

lab: $(READY)
	@$(BIN)/python tools/trust_notebooks.py
	@echo "00_quick_tour opens in your browser; Ctrl-C ends JupyterLab"
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks/00_quick_tour.ipynb

train: $(READY)
	$(TRAIN_SMALL)
	$(BIN)/transformer-lib translate --model $(MODEL) --beam-size 4 --attention build/attention.png "Der Mann hebt den roten Ball auf."
	@echo "what it looked at: build/attention.png. Your own sentence: $(BIN)/transformer-lib translate --model $(MODEL) \"…\""

bench: $(READY) book
	$(BIN)/python benchmarks/translation.py --output build/translation.json
	$(BIN)/python benchmarks/training.py --output build/training.json
	$(BIN)/python benchmarks/curves.py --output build/curves.json
	$(BIN)/python benchmarks/fast.py --output build/fast.json
	@if command -v node > /dev/null; then set -x; $(BIN)/python benchmarks/translator_page.py --output build/translator_page.json; \
		else echo "the book's page Try it is left out: that takes node"; fi
	@echo "the figures are in build/*.json; book/results.md says what they were elsewhere"

bench-gpu: $(READY)
	$(BIN)/python benchmarks/gpu.py

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@echo "next: make test"

outputs: $(READY)
	@$(BIN)/python -c 'import transformer_lib; transformer_lib.load_corpus("multi30k")["train"]'  # or sample takes its place
	@mkdir -p build/outputs/solutions build/outputs/runs
	@find build/outputs/runs -mindepth 1 -maxdepth 1 ! -name mine -exec rm -r {} +  # notebook 06's model, for 07 to 09
	@for notebook in $(ALL:notebooks/%=%); do cp "notebooks/$$notebook" "build/outputs/$$notebook" || exit; done
	@$(MAKE) --no-print-directory --jobs 1 $(call RUNS,build/outputs,$(ALL))
	$(NBCONVERT) --inplace --coalesce-streams $(CLEAN) $(ALL:notebooks/%=build/outputs/%)  # drops progress bars
	@for notebook in $(ALL:notebooks/%=%); do cp "build/outputs/$$notebook" "notebooks/$$notebook" || exit; done
	@echo "stored in notebooks/: see what changed with git diff --stat, then make test"

repository:
	@$(PYTHON) tools/set_repository.py "$$URL"

clean:
	rm -rf build .venv
