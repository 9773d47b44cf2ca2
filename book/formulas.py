"""Formulas of notebooks and pages as MathML, written when the book is built: a browser draws it without a script."""

import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.logging import getLogger

LOGGER = getLogger(__name__)
PAIRS = {"{": "}", r"\\begin\b": r"\\end\b", r"\\left\b": r"\\right\b"}
# What JupyterLab, Colab and GitHub know, and docutils does not, or calls otherwise.
AS_DOCUTILS_SAYS = {
    r"\\dots(?![a-z])": r"\\ldots",
    r"\\([bB]igg?)(?=[(\[|]|\\[{l])": r"\\\1l",  # a large bracket opens …
    r"\\([bB]igg?)(?=[)\]]|\\[}r])": r"\\\1r",  # … and closes
    r"\\([dt]?frac)(\d)(\d)": r"\\\1{\2}{\3}",
    r"\\text(tt|bf|it)(?![a-z])": r"\\math\1",
}


def mathml(tex: str, block: bool) -> str:
    """Return a formula, in LaTeX, as MathML.

    Raises:
        MathError: it is not whole, or has something in it that docutils does not know.
    """
    bare = re.sub(r"\\[\\{}]", "", tex)
    for opens, closes in PAIRS.items():  # docutils would close them somewhere
        if len(re.findall(opens, bare)) != len(re.findall(closes, bare)):
            raise MathError("not all that opens in it closes: a bracket, `\\begin` or `\\left`")
    for pattern, known in AS_DOCUTILS_SAYS.items():
        tex = re.sub(pattern, known, tex)
    return tex2mathml(tex, as_block=block)


def write_formula(translator, node):
    """Write a formula into a page: one on a line of its own lies in a box, in which it scrolls where it is too wide."""
    block = isinstance(node, nodes.math_block)
    try:
        written = mathml(node.astext(), block)
    except (MathError, IndexError) as error:
        LOGGER.warning("the formula %s cannot be drawn: %s", node.astext(), error, location=node)
        written = ""
    translator.body.append(f'<div class="formula">{written}</div>' if block else written)
    raise nodes.SkipNode


class KeepTogether(SphinxPostTransform):
    """Let no line end between a formula and the comma, bracket or full stop after it, as browsers would."""

    default_priority = 200

    def run(self, **kwargs):
        """Put the two into one box."""
        for formula in list(self.document.findall(nodes.math)):
            following = formula.next_node(descend=False, siblings=True)
            if isinstance(following, nodes.Text) and (marks := re.match(r"[^\w\s]+", following)):
                following.parent.replace(following, nodes.Text(following[marks.end() :]))
                whole = nodes.inline("", "", formula.deepcopy(), nodes.Text(marks[0]), classes=["whole"])
                formula.replace_self(whole)


def setup(app):
    """Tell Sphinx about the above."""
    app.add_config_value("formulas", Path(__file__).read_text(encoding="utf-8"), "env")  # changed, all is read again
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.add_post_transform(KeepTogether)
