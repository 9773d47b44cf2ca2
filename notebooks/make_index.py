"""Turn the executed notebooks of a folder into a small site: HTML pages that link to each other, and an index.

Run by `make notebooks`: python notebooks/make_index.py build
"""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The Transformer, step by step</title>
<style>li {{ margin: 1rem 0 }}</style>
<body style="max-width: 44rem; margin: 3rem auto; padding: 0 1rem; font: 1.05rem/1.5 system-ui, sans-serif">
<h1>The Transformer, step by step</h1>
<p>From raw sentences to a trained, evaluated and visualised encoder-decoder Transformer.</p>
<ol start="0">
{items}
</ol>
</body>
</html>
"""
ITEM = '<li><a href="{page}"><strong>{title}</strong></a><br>{promise}<br><small>{time}</small></li>'
SOURCE_STYLE = """<style>
.jp-RenderedMarkdown .highlight pre {
  font: 13px/1.4 monospace; padding: 0.5em; border-left: 3px solid #31568c; white-space: pre; overflow-x: auto }
</style>
"""


def describe(notebook: Path) -> dict[str, str]:
    """Read title, promise and reading time from a notebook's first cell."""
    source = json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"]
    text = source if isinstance(source, str) else "".join(source)
    found = {
        "title": re.search(r"^# \d\d · (.+)$", text, re.MULTILINE)[1],
        "promise": re.search(r"^\*\*(.+)\*\*$", text, re.MULTILINE)[1],
        "time": re.search(r"Reading time: [^.]+", text)[0],
    }
    return {"page": f"{notebook.stem}.html", **{name: html.escape(value) for name, value in found.items()}}


def finish_page(page: str) -> str:
    """Let links to the series' notebooks lead to their HTML pages, and show the library's source as code."""
    page = page.replace("</head>", f"{SOURCE_STYLE}</head>", 1)
    return re.sub(r'(href="\d\d_\w+)\.ipynb', r"\1.html", page)


def main(folder: Path) -> None:
    """Convert every notebook in ``folder`` and write ``index.html`` beside them."""
    notebooks = sorted(folder.glob("[0-9]*.ipynb"))
    convert = [sys.executable, "-m", "nbconvert", "--log-level", "ERROR", "--to", "html"]
    subprocess.run([*convert, "--CoalesceStreamsPreprocessor.enabled=True", *notebooks], check=True)
    for notebook in notebooks:
        page = notebook.with_suffix(".html")
        page.write_text(finish_page(page.read_text(encoding="utf-8")), encoding="utf-8")
    items = "\n".join(ITEM.format(**describe(notebook)) for notebook in notebooks)
    (folder / "index.html").write_text(PAGE.format(items=items), encoding="utf-8")
    print(f"{folder / 'index.html'}: {len(notebooks)} notebooks")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
