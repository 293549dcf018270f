"""The frame of a page: one file that asks for nothing else. Its policy names the only style and the only script.

Without the script all is shown; with it the table of a search gets its filters.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from preflight.reports.svg import LIGHT, SHAPES, text_of

_STYLE = """
*{box-sizing:border-box}
html{color-scheme:light dark;LIGHT
--bad:#b4232c;--warn:#7d5200;--good:#116329;--info:#0550ae}
@media screen and (prefers-color-scheme:dark){html{--bg:#0d1117;--ink:#e6edf3;--soft:#9ea7b3;--line:#3d444d;
--panel:#161b22;--bad:#ff8a80;
--warn:#e3b341;--good:#56d364;--info:#79c0ff;--c0:#6e7681;--c1:#4f8fdb;--c2:#e0853c;--c3:#46ad74;--c4:#d9606c;
--c5:#9d83cc;--c6:#b8954d;--c7:#2aa8b6}}
body{margin:0 auto;max-width:62rem;padding:1rem;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem}
h3{font-size:1rem}
a{color:var(--info)}:focus-visible{outline:3px solid var(--info);outline-offset:2px}
.skip{position:absolute;left:-99em}.skip:focus{position:static}
code,pre,.num{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:var(--panel);padding:.5rem;overflow-x:auto;margin:.25rem 0}mark{background:none;
color:var(--bad);font-weight:700;text-decoration:underline}
table{border-collapse:collapse;margin:.5rem 0}caption{text-align:left;color:var(--soft);padding:.25rem 0;
min-width:min(34rem,85vw)}th.num{font-family:inherit;font-size:1em}
.value{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere;min-width:8em}
td code{overflow-wrap:anywhere}
th,td{text-align:left;vertical-align:top;padding:.2rem .6rem;border-bottom:1px solid var(--line)}
.num{text-align:right;white-space:nowrap}.wide{overflow-x:auto;max-height:32rem;overflow-y:auto}
.wide thead th{position:sticky;top:0;background:var(--bg)}
tr[hidden]{display:none}.exceeds,.error{color:var(--bad);font-weight:600}.at-risk,.warning{color:var(--warn);
font-weight:600}
.fits{color:var(--good)}.fits-if,.unknown,.info{color:var(--info)}.soft{color:var(--soft)}
svg{display:block;width:100%;height:auto;margin:.5rem 0}svg text{fill:var(--ink);
font:11px system-ui,sans-serif}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 0}.legend{list-style:none;padding:0;
display:flex;flex-wrap:wrap;gap:.2rem 1rem}
SHAPES
.filters{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:end}.filters label{display:grid;
font-size:.85em}select,button{font:inherit}select{min-width:6em}
@media print{html{color-scheme:light;--ink:#000;--soft:#333}.wide{max-height:none;overflow:visible}
.filters,.skip{display:none}tr,svg,section{break-inside:avoid}h1,h2,h3,caption{break-after:avoid}
tr[hidden]{display:none}}
""".replace("LIGHT", LIGHT).replace("SHAPES", SHAPES)

_SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.space")) {
  const rows = [...table.tBodies[0].rows], box = document.createElement("div"), said = document.createElement("output");
  box.className = "filters";
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Filters of " + table.caption.textContent);
  const chosen = [], more = document.createElement("button");
  let most = 500;
  more.type = "button";
  more.addEventListener("click", () => { most = Infinity; show(); said.focus(); });
  said.tabIndex = -1;
  function choice(name, texts, none) {
    const values = [...new Set(texts)].filter(text => text !== none);
    if (values.length < (none === undefined ? 2 : 1) || values.length > 200) return;
    const label = document.createElement("label"), select = document.createElement("select");
    select.append(new Option("all", ""), ...values.map(value => new Option(value, "=" + value)));
    label.append(name, select);
    box.append(label);
    chosen.push([texts, select]);
    select.addEventListener("change", show);
  }
  choice("show", rows.map(row => row.dataset.mark || ""), "");
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    if ("filter" in head.dataset) choice(head.textContent, rows.map(row => row.cells[at].textContent));
  });
  function show() {
    let count = 0;
    rows.forEach((row, at) => {
      const out = chosen.some(([texts, select]) => select.value && "=" + texts[at] !== select.value);
      const hidden = out || count >= most;
      if (row.hidden !== hidden) row.hidden = hidden;
      if (!out) count++;
    });
    const cut = count > most;
    said.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` +
      (cut ? `, the first ${most} are shown` : "");
    more.textContent = `Show all ${count.toLocaleString("en")}`;
    more.hidden = !cut;
  }
  if (chosen.length || rows.length > most) {
    box.append(said, more);
    table.parentElement.before(box);
    show();
  }
}
"""


def _policy(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def page(title: str, body: str) -> str:
    """A whole page. `title` is text, `body` is markup."""
    policy = f"default-src 'none'; style-src '{_policy(_STYLE)}'; script-src '{_policy(_SCRIPT)}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text_of(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#content">Skip to the content</a>\n<main id="content">\n{body}\n</main>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


SAFE, UNSAFE = "the largest part that fits", "unsafe combinations"
"""Marks of rows, as a reader chooses them."""


def table(
    caption: str,
    headings: list[tuple[str, str]],
    rows: list[list[tuple[str, str]]],
    kind: str = "",
    marks: Sequence[str] = (),
) -> str:
    """A table of (markup, class) cells; the first cell of a row is its heading. A class of a heading that ends in `*`
    gives its column a filter. `marks`: of each row a text to choose rows by, or none. It can be scrolled with the
    keyboard."""
    head = "".join(
        f'<th scope="col" class="{name.rstrip("*")}"{" data-filter" if name.endswith("*") else ""}>{text}</th>'
        for text, name in headings
    )
    lines = []
    for at, ((first, name), *rest) in enumerate(rows):
        cells = "".join(f'<td class="{style}">{text}</td>' for text, style in rest)
        mark = f' data-mark="{text_of(marks[at])}"' if marks and marks[at] else ""
        lines.append(f'<tr{mark}><th scope="row" class="{name}">{first}</th>{cells}</tr>')
    body = "\n".join(lines)
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{text_of(caption)}">\n<table class="{kind}">'
        f"<caption>{text_of(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )
