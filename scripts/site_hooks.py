"""What mkdocs asks when it builds the site: links to files that are no pages lead to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(\]\()(\.\./[^)\s#]+)(#[^)\s]*)?(\))")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page; a relative link that leaves docs/ becomes the address of the file on the main branch."""
    folder = posixpath.dirname(page.file.src_uri)

    def absolute(found: re.Match[str]) -> str:
        before, link, anchor, after = found.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, link))
        if path.startswith("docs/"):
            return found[0]
        return f"{before}{config.repo_url.rstrip('/')}/blob/main/{path}{anchor or ''}{after}"

    return _LINK.sub(absolute, markdown)
