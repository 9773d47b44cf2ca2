"""What the book adds to Sphinx: ways between notebooks, library and pages, and what the theme lacks.

Links of notebooks and pages are led to the book's own pages, or else to the repository, once it has an address; names
of the library lead to its entries, and these to where readers write or see them; images get descriptions.
"""

import ast
import collections
import graphlib
import html
import importlib
import json
import posixpath
import re
from pathlib import Path

from docutils import nodes
from myst_parser.mdit_to_docutils.base import default_slugify
from set_repository import UNNAMED, address
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.logging import getLogger
from sphinx.util.nodes import make_refnode
from test_package import ROOMS

LOGGER = getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
HOST, NAME = address((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = f"https://{HOST}/{NAME}"
NAMED = NAME != UNNAMED  # until then, no button leads there


def cells_of(path: Path) -> list[dict]:
    """Return a notebook's cells, each source as one string."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{"kind": cell["cell_type"], "source": "".join(cell["source"])} for cell in cells]


NOTEBOOKS = {path.stem: cells_of(path) for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))}


def entry(stem: str, cells: list[dict]) -> str:
    """Describe a notebook from its first cell: a link, what it promises, and how long it takes to read."""
    title, promise, time, *_ = cells[0]["source"].split("\n\n")
    return f"[{title.removeprefix('# ')}](notebooks/{stem}.ipynb)\n: {promise.strip('*')} *{time.split('.')[0]}.*"


def series() -> str:
    """Describe all notebooks, for the front page."""
    return "\n\n".join(entry(*notebook) for notebook in NOTEBOOKS.items())


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the full names of what code imports from the library, by the names that it gives them."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("transformer_lib"):
            for name in node.names:
                home = importlib.import_module(node.module)
                if not hasattr(home, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")  # a module, not yet loaded
                thing = getattr(home, name.name)
                module = getattr(thing, "__module__", node.module)  # where it is defined, if it says so
                names[name.asname or name.name] = f"{module}.{name.name}"
    return names


def order() -> list[str]:
    """Return the folders and modules at the root of the library, each of which uses only those before it."""
    return [room for room in ROOMS if "." not in room]


def modules_of(folder: str) -> list[str]:
    """Return a folder's modules, each after those that it imports, else by the alphabet."""
    needs = {}
    for path in (ROOT / "transformer_lib" / folder).glob("[!_]*.py"):
        nodes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
        imported = {name for node in nodes for name in (node.module, *(f"{node.module}.{n.name}" for n in node.names))}
        needs[path.stem] = imported
    sorter = graphlib.TopologicalSorter(
        {one: {two for two in needs if f"transformer_lib.{folder}.{two}" in needs[one]} for one in needs}
    )
    sorter.prepare()
    found = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found += ready
        sorter.done(*ready)
    return found


def chapter(name: str) -> str:
    """Write a folder's part of the page about the library: what its docstring says, and a table of its modules."""
    modules, about = [name], ""
    init = ROOT / "transformer_lib" / name / "__init__.py"
    if init.is_file():
        modules = [f"{name}.{module}" for module in modules_of(name)]
        about = f"{ast.get_docstring(ast.parse(init.read_text(encoding='utf-8')))}\n\n"
    rows = "".join(f"   ~transformer_lib.{module}\n" for module in modules)
    return f"## {name}\n\n```{{eval-rst}}\n{about}.. autosummary::\n   :toctree: api\n\n{rows}```\n"


def write_library(app):
    """Let the page about the library end in the whole of it, before autosummary looks for what is to get a page."""
    start = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    Path(app.srcdir, "api.md").write_text("\n".join([start, *map(chapter, order())]), encoding="utf-8")


def explanations() -> dict[str, list[tuple[str, str, str]]]:
    """Return where each part of the library is explained, by its full name: notebook, its title, and the heading.

    That is where the reader first writes it, and where a notebook calls ``show_source`` with it.
    """
    found = collections.defaultdict(list)
    boxes = {
        node.name: f"transformer_lib.model.{path.stem}.{node.name}"
        for path in (ROOT / "transformer_lib" / "model").glob("[!_]*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    for stem, cells in NOTEBOOKS.items():
        known, title, heading = {}, cells[0]["source"].split("\n")[0].removeprefix("# "), ""
        for cell in cells:
            if cell["kind"] == "markdown":
                heading = [heading, *re.findall(r"^#+ (.+)$", cell["source"], re.MULTILINE)][-1]
                continue
            tree = ast.parse(re.sub(r"^( *)[%!].*", r"\1pass", cell["source"], flags=re.MULTILINE))
            known |= imported(tree)
            for node in tree.body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and (box := boxes.pop(node.name, None)):
                    found[box].append((stem, title, heading))
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            shown = [call.args for call in calls if ast.unparse(call.func) == "show_source"]
            for first, *path in (ast.unparse(argument).split(".") for arguments in shown for argument in arguments):
                if first in known:  # as type(model) is not
                    found[".".join([known[first], *path])].append((stem, title, heading))
    return found


EXPLANATIONS = explanations()


def add_explanations(app, domain, kind, content):
    """Let the entry of a class or function say where it is explained; a class's, also for its private parts."""
    signature = content.parent[0]
    parts = re.compile(rf"{signature.get('module')}.{signature.get('fullname')}(\._\w+)?")
    places = [place for part, places in EXPLANATIONS.items() if parts.fullmatch(part) for place in places]
    paragraph = nodes.paragraph()
    for stem, title, heading in dict.fromkeys(places):
        kinds = {"refdomain": "doc", "reftype": "myst", "refdoc": app.env.docname, "refexplicit": True}
        target = {"reftarget": f"notebooks/{stem}", "reftargetid": default_slugify(heading)}
        link = addnodes.pending_xref("", nodes.inline("", f"{title}: {heading}"), **kinds, **target)
        paragraph += [nodes.Text("; " if paragraph else "Explained in "), link]
    if paragraph:
        content.append(paragraph)


UNSOLVED = re.compile(r"\w[\w., ]* · not solved yet: ")
COLUMNS = re.compile(r"\S {2,}\S|^ ", re.MULTILINE)  # in what a cell prints; anything else is sentences


class Finish(SphinxPostTransform):
    """Let names of the library lead to their entries, say what images show, and tell kinds of printed text apart."""

    default_priority = 200

    def run(self, **kwargs):
        """Do so where a public class or function is first mentioned, in every page but the library's own."""
        for image in self.document.findall(nodes.image):
            if "alt" not in image:
                image["alt"] = self.described(image)
        for block in self.document.findall(nodes.literal_block):
            if UNSOLVED.match(block.astext()):
                block["classes"].append("unsolved")
            if "stream" in block["classes"] and not COLUMNS.search(block.astext()):
                block["classes"].append("said")
        if self.env.docname.startswith("api"):
            return
        entries = self.env.domains.python_domain.objects.items()
        known = {name.split(".")[-1]: (name, at) for name, at in entries if at.objtype in ("class", "function")}
        for word in ("positions", "share", "start", "train"):  # mostly an attribute, a split or an argument
            known.pop(word, None)
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, (nodes.reference, nodes.title)) or is_elsewhere(literal):
                continue
            if literal.astext() in known:
                name, at = known.pop(literal.astext())
                here = self.env.docname
                literal.replace_self(
                    make_refnode(self.app.builder, here, at.docname, at.node_id, literal.deepcopy(), name)
                )

    def described(self, image: nodes.image) -> str:
        """Return what an output's image shows: a drawing's own description, or the caption below the cell.

        Where no caption says it, the cell's metadata do.
        """
        if image["uri"].endswith(".svg"):
            drawing = Path(self.env.srcdir, image["uri"]).read_text(encoding="utf-8")
            if described := re.search(r"<desc[^>]*>(.*?)</desc>", drawing, re.DOTALL):  # a plot has none
                return html.unescape(described[1])
        cell = image.parent
        while "cell" not in cell["classes"]:  # a hidden output lies in a box of its own
            cell = cell.parent
        below = cell.next_node(nodes.paragraph, descend=False, siblings=True)
        if below is not None and isinstance(below[0], nodes.emphasis):
            return below[0].astext()
        advice = 'write a caption in italics below its cell, or {"mystnb": {"image": {"alt": …}}} into its metadata'
        LOGGER.warning("nothing says what an image shows: %s", advice, location=cell)
        return ""


def is_elsewhere(literal: nodes.literal) -> bool:
    """Say whether a name is in the column "there" of a table, for what other people's code calls it."""
    entry = literal
    while not isinstance(entry, nodes.entry):
        if entry.parent is None:
            return False
        entry = entry.parent
    head = entry.parent.parent.parent.next_node(nodes.thead)
    return head is not None and head[0][entry.parent.index(entry)].astext() == "there"


def note_notebooks(app, docname, source):
    """Read the library's entries again when a notebook has changed, which may explain something elsewhere."""
    if docname.startswith(("api", "index")):
        for stem in NOTEBOOKS:
            app.env.note_dependency(str(ROOT / "notebooks" / f"{stem}.ipynb"))


def without_fields(app, what, name, thing, skip, options):
    """Leave out a named tuple's fields, which its docstring describes, and what matplotlib puts into its subclasses."""
    is_matplotlibs = (getattr(thing, "__module__", None) or "").startswith("matplotlib.")
    return isinstance(thing, collections._tuplegetter) or is_matplotlibs or None


STATE = re.compile(r"(tour|de)=")  # an address of the page "Try it" that says what it shows
LINK = re.compile(r"\[((?:`[^`]*`|[^\[\]`])*)\]\(([^)\s:]+)\)")  # text and target, which is no address


def lead(text: str, folder: str, source: Path) -> str:
    """Let links in a text of that folder lead to the book's own pages and files, which are in ``source``.

    What the book has not is in the repository; as long as that has no address, only the link's text is left.
    """

    def target(link):
        path, mark, anchor = link[2].partition("#")
        anchor = anchor.removeprefix("cell-id=")  # as JupyterLab wants it; a cell to link to is called as its heading
        path = posixpath.normpath(posixpath.join(folder, path))
        if STATE.match(anchor) and path in (folder, "book/try_it.md"):
            page = posixpath.relpath("try_it.html", folder.removeprefix("book") or ".")
            # Sphinx would look for a place of that name. A double quote would end a notebook's text, which is JSON.
            return f"<a href='{page}#{html.escape(anchor)}'>{link[1]}</a>"
        if not (ROOT / path).exists() or path == folder:  # within the page, or wrong: then Sphinx says so
            return link[0]
        page = path.removeprefix("book/")
        if (source / page).is_file():
            return f"[{link[1]}](/{page}{mark}{anchor})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{link[1]}]({REPOSITORY}/{kind}/main/{path}{mark}{anchor})" if NAMED else link[1]

    return LINK.sub(target, text)


def adapt(app, docname, source):
    """Lead links to where they lead from here, and let nothing be loaded from Colab."""
    folder = posixpath.dirname(docname) or ("book" if (ROOT / "book" / f"{docname}.md").exists() else "")
    text = lead(source[0], folder, Path(app.srcdir))
    source[0] = re.sub(r"!\[Open in Colab\]\([^)]*\)", "Open in Colab", text)


def make_accessible(app, page, template, context, doctree):
    """Mend what screen readers stumble over: arrows without a name, empty headings, and lists without terms."""
    toctree = context["generate_toctree_html"]
    named = '<summary aria-label="Show or hide the pages of this part">'
    context["generate_toctree_html"] = lambda *args, **kwargs: str(toctree(*args, **kwargs)).replace("<summary>", named)
    parameters = re.compile(r'<dl>\s*(<dd><em class="sig-param">.*?)</dl>', re.DOTALL)
    body = parameters.sub(r'<div class="parameters">\1</div>', context.get("body", ""))
    body = re.sub(r'<dd>(<em class="sig-param">.*?)</dd>', r"<div>\1</div>", body)
    body = body.replace('<summary aria-label="Toggle hidden content">', "<summary>")  # it says "Show code cell source"
    context["body"] = re.sub(r'<th class="head">(<p></p>)?</th>', "<td></td>", body)


def copy_texts(app, error):
    """Copy what the pages say for the search's excerpts: opened from a disk, no browser reads another page."""
    if error or app.builder.format != "html":
        return
    texts = {}
    for page in app.env.found_docs:
        document = app.env.get_doctree(page)
        for raw in list(document.findall(nodes.raw)):  # HTML
            raw.parent.remove(raw)
        texts[page] = " ".join(document.astext().split())
    script = f"const TEXTS = {json.dumps(texts, ensure_ascii=False)};\n"
    Path(app.outdir, "_static", "texts.js").write_text(script, encoding="utf-8")


def setup(app):
    """Tell Sphinx about the above."""
    app.add_config_value("repository", REPOSITORY, "env")  # all pages are read again if it changes, or this file
    app.add_config_value("extension", Path(__file__).read_text(encoding="utf-8"), "env")
    app.connect("builder-inited", write_library, priority=400)
    app.connect("source-read", adapt)
    app.connect("source-read", note_notebooks)
    app.connect("object-description-transform", add_explanations)
    app.connect("autodoc-skip-member", without_fields)
    app.connect("html-page-context", make_accessible, priority=900)  # after the theme
    app.connect("build-finished", copy_texts)
    app.add_post_transform(Finish)
