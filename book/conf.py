"""The series as a book: the settings with which `make book` starts Sphinx; extension.py is what it adds to Sphinx.

Its pages are the files beside this one, the notebooks with their outputs, and the library's docstrings. The Makefile
copies them to where Sphinx reads them: this folder's pages at the top, the others beneath.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in ("book", "notebooks", "tests", "tools"))]
from extension import HOST, NAMED, REPOSITORY, series  # noqa: E402

project = html_title = "The Transformer, step by step"
author = "the transformer-lib authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton", "extension", "formulas"]
templates_path = [str(ROOT / "book" / "_templates")]  # autosummary looks for others beside what it reads

nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}  # would come from elsewhere; what stands for a widget is shown instead
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "dollarmath", "substitution"]
myst_dmath_allow_space = False  # "from $5 to $6" is money
html_math_renderer = "mathml"  # formulas.py
myst_substitutions = {"series": series()}

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
napoleon_custom_sections = [("Attributes", "params_style")]
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(ROOT / "book" / "scorer.js")
copybutton_selector = "div.highlight pre:not(.text_plain pre, .stream pre)"  # code, not what it prints
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_use_index = html_domain_indices = False
html_show_copyright = html_show_sphinx = False
html_theme_options = {
    "repository_url": REPOSITORY,
    "repository_branch": "main",
    "launch_buttons": {"colab_url": "https://colab.research.google.com"} if HOST == "github.com" and NAMED else {},
    "use_repository_button": NAMED,
    "navbar_persistent": [],  # the search is in the side bar
    "show_navbar_depth": 1,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
