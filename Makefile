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
# Without the state of its widgets, a page shows what stands for them, and loads no widget manager from elsewhere.
NBCONVERT := $(BIN)/jupyter nbconvert --log-level ERROR --ExecutePreprocessor.store_widget_state=False
ifdef TRANSFORMER_LIB_DATA  # notebooks run in other folders
export TRANSFORMER_LIB_DATA := $(abspath $(TRANSFORMER_LIB_DATA))
endif

.PHONY: help notebooks book test test-faults lab train bench lint outputs repository clean

help:
	@echo "make notebooks   run the whole series on the embedded corpus; a book of it in build/notebooks/book/"
	@echo "make book        the series as a book, from the outputs that the notebooks hold, in build/book/"
	@echo "make test        run every check: ruff, pytest, and the notebooks through nbval"
	@echo "make test-faults break things in every way that we know, for 40 minutes, and print a table of what was lost"
	@echo "make lab         open the series in JupyterLab"
	@echo "make train       train, score and try a small model; a picture of its attention in build/"
	@echo "make bench       measure how fast training and translating are, on Multi30k; JSON in build/"
	@echo "make lint        put the code into shape with ruff"
	@echo "make outputs     run the series in full and store the outputs in the notebooks"
	@echo "make repository URL=https://github.com/OWNER/NAME   write your repository's address wherever it stands"
	@echo "make clean       remove build/ and .venv/"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.12 …')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[notebooks,book,test]"
	@touch $@

# Notebooks run in a copy, so that neither they nor the models they train mix with what is yours.
notebooks: $(READY)
	@mkdir -p build/notebooks && rm -rf build/notebooks/runs && cp $(SERIES) build/notebooks
	cd build/notebooks && TRANSFORMER_LIB_CORPUS=sample ../../$(NBCONVERT) --to notebook --inplace --execute $(SERIES:notebooks/%=%)
	$(MAKE) book NOTEBOOKS=build/notebooks BOOK=build/notebooks/book

# Sphinx reads a copy: the book's own pages at the top, notebooks and drawings beneath, as old as the originals.
book: $(READY)
	@mkdir -p $(BOOK)-source && rm -rf $(BOOK)-source/*.md $(BOOK)-source/assets $(BOOK)-source/notebooks
	@mkdir -p $(BOOK)-source/assets $(BOOK)-source/notebooks && cp -p book/*.md $(BOOK)-source
	@cp -pR assets/figures assets/*.png $(BOOK)-source/assets
	@cp -pR $(NOTEBOOKS)/[0-9]*.ipynb $(wildcard notebooks/solutions) $(BOOK)-source/notebooks
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir book $(BOOK)-source $(BOOK) \
		|| (rm -rf $(BOOK) && false)  # the next time would not look again at pages that have not changed
	@echo $(BOOK)/index.html

# Two processes, each of one thread: with more, OpenMP's threads would wait for those of the other process.
test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	TRANSFORMER_LIB_FAST_DEV_RUN=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --nbval-lax tests notebooks

test-faults: $(READY)
	$(BIN)/python -m pytest -m faults tests

lab: $(READY)
	$(BIN)/jupyter lab notebooks

train: $(READY)
	$(TRAIN_SMALL)
	$(BIN)/transformer-lib translate --model $(MODEL) --beam-size 4 --attention build/attention.png "Der Mann hebt den roten Ball auf."

bench: $(READY)
	$(BIN)/python benchmarks/translation.py --output build/translation.json
	$(BIN)/python benchmarks/training.py --output build/training.json
	$(BIN)/python benchmarks/curves.py --output build/curves.json

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

outputs: $(READY)
	@mkdir -p build/outputs/solutions && rm -rf build/outputs/runs
	cp $(SERIES) build/outputs && cp $(SOLUTIONS) build/outputs/solutions
	cd build/outputs && ../../$(NBCONVERT) --to notebook --inplace --execute $(ALL:notebooks/%=%)
	cd build/outputs && ../../$(NBCONVERT) --inplace --coalesce-streams $(ALL:notebooks/%=%)  # leaves progress bars out
	cp $(SERIES:notebooks/%=build/outputs/%) notebooks && cp $(SOLUTIONS:notebooks/%=build/outputs/%) notebooks/solutions

repository: $(READY)
	$(BIN)/python notebooks/set_repository.py $(URL)

clean:
	rm -rf build .venv
