"""What each of two processes does in ``test_corpora.py``; they import it from here, however pytest names its tests."""

import os

from transformer_lib.data import corpora


def load_val(folder, downloads):
    os.environ["TRANSFORMER_LIB_DATA"] = str(folder)
    corpora.DOWNLOADS["multi30k"] = downloads
    assert len(corpora.load_corpus("multi30k")["val"]) == 2
