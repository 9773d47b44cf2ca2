"""The figure of notebook 05: the whole model's place in figure 1."""

from functools import partial

from drawings.notebook_04 import here

FIGURES = (partial(here, "whole"),)
