"""The figures of the series: what they are drawn with in ``kit.py``, and a module for each notebook that has any."""
