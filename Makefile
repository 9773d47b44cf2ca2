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

# Run notebooks in place, one after another, from a folder two levels down; say which one is running, and how long it took.
# Stop at the first that fails, and show what it said; warnings of those that pass are left out.
define RUN_EACH
@cd $(1) && began=$$(date +%s) && for notebook in $(2); do \
	name=$${notebook%.ipynb}; started=$$(date +%s); \
	printf '%-32s running …  ' "$$name"; \
	messages=$$($(3) ../../$(NBCONVERT) --to notebook --inplace --execute "$$notebook" 2>&1) || \
		{ printf 'failed\n%s\n\n%s failed: its message is above\n' "$$messages" "$(1)/$$notebook"; exit 1; }; \
	printf '%4d s\n' $$(($$(date +%s) - started)); \
done && printf '%-32s            %4d s\n' "in all" $$(($$(date +%s) - began))
endef

.PHONY: help notebooks book check test test-all lab train bench bench-gpu lint outputs repository clean

help:
	@echo "make notebooks   run the whole series on the sample corpus; a book of it in build/notebooks/book/"
	@echo "make book        the series as a book, from the outputs stored in the notebooks, in build/book/"
	@echo "make check       run the library's own tests"
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

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.12 …')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[notebooks,book,test]"
	@touch $@

# The notebooks run as copies in build/, so that neither they nor the models they train get mixed up with yours.
notebooks: $(READY)
	@mkdir -p build/notebooks && rm -rf build/notebooks/runs && cp $(SERIES) build/notebooks
	$(call RUN_EACH,build/notebooks,$(SERIES:notebooks/%=%),TRANSFORMER_LIB_CORPUS=sample)
	@$(MAKE) --no-print-directory book NOTEBOOKS=build/notebooks BOOK=build/notebooks/book

# Sphinx reads a copy: the book's own pages at the top, notebooks and drawings beneath, with the originals' times.
book: $(READY)
	@echo "building the book …"
	@mkdir -p $(BOOK)-source && rm -rf $(BOOK)-source/*.md $(BOOK)-source/assets $(BOOK)-source/notebooks
	@mkdir -p $(BOOK)-source/assets $(BOOK)-source/notebooks && cp -p book/*.md $(BOOK)-source
	@cp -pR assets/figures assets/*.svg $(BOOK)-source/assets
	@cp -pR $(NOTEBOOKS)/[0-9]*.ipynb $(wildcard notebooks/solutions) $(BOOK)-source/notebooks
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir book $(BOOK)-source $(BOOK) \
		|| (rm -rf $(BOOK) && false)  # or the next build would skip the pages that have not changed
	@$(BIN)/python book/translator/write_weights.py $(BOOK)/translator
	@echo $(BOOK)/index.html

# Two processes of one thread each: with more threads, the two would wait for each other's.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

NOTEBOOKS_AND_TESTS := --nbval-lax notebooks tests

check: $(READY)
	$(PYTEST) --ignore tests/project tests

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	TRANSFORMER_LIB_FAST_DEV_RUN=1 $(PYTEST) $(NOTEBOOKS_AND_TESTS)

test-all: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	TRANSFORMER_LIB_FAST_DEV_RUN=1 $(PYTEST) -m "slow or not slow" $(NOTEBOOKS_AND_TESTS)
	$(BIN)/python tests/project/test_devices.py

lab: $(READY)
	$(BIN)/jupyter lab notebooks

train: $(READY)
	$(TRAIN_SMALL)
	$(BIN)/transformer-lib translate --model $(MODEL) --beam-size 4 --attention build/attention.png "Der Mann hebt den roten Ball auf."

bench: $(READY) book
	$(BIN)/python benchmarks/translation.py --output build/translation.json
	$(BIN)/python benchmarks/training.py --output build/training.json
	$(BIN)/python benchmarks/curves.py --output build/curves.json
	$(BIN)/python benchmarks/fast.py --output build/fast.json
	@if command -v node > /dev/null; then set -x; $(BIN)/python benchmarks/translator_page.py --output build/translator_page.json; \
		else echo "the book's page Try it is left out: that takes node"; fi

bench-gpu: $(READY)
	$(BIN)/python benchmarks/gpu.py

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

outputs: $(READY)
	@$(BIN)/python -c 'import transformer_lib; transformer_lib.load_corpus("multi30k")["train"]'  # or sample takes its place
	@mkdir -p build/outputs/solutions build/outputs/runs
	@find build/outputs/runs -mindepth 1 -maxdepth 1 ! -name mine -exec rm -r {} +  # notebook 05's model, for 06 to 08
	@for notebook in $(ALL:notebooks/%=%); do cp "notebooks/$$notebook" "build/outputs/$$notebook" || exit; done
	$(call RUN_EACH,build/outputs,$(ALL:notebooks/%=%))
	cd build/outputs && ../../$(NBCONVERT) --inplace --coalesce-streams $(CLEAN) $(ALL:notebooks/%=%)  # drops progress bars
	@for notebook in $(ALL:notebooks/%=%); do cp "build/outputs/$$notebook" "notebooks/$$notebook" || exit; done

repository: $(READY)
	@$(BIN)/python notebooks/set_repository.py "$$URL"

clean:
	rm -rf build .venv
