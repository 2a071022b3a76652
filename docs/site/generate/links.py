"""A Sphinx extension: names in code lead to the reference, and types of C in signatures of C++ do."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

_NAME = re.compile(r"^(?:(?P<c>(?:heddle|HEDDLE|shmemx?)_\w+)|(?P<cpp>heddle::[\w:]+)|(?P<py>heddle(?:\.\w+)+))(?:\(\))?$")


class LinkNames(SphinxPostTransform):
    """`heddle_put` in a document leads to its entry, if there is one."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        here = self.env.current_document.docname
        if here.startswith("files/"):
            return
        for node in list(self.document.findall(nodes.literal)):
            match = _NAME.match(node.astext())
            if not match or _within(node, (nodes.reference, addnodes.pending_xref, nodes.title)):
                continue
            domain, kind = ("c", "func") if match["c"] else ("cpp", "any") if match["cpp"] else ("py", "obj")
            name = match["c"] or match["cpp"] or match["py"]
            xref = addnodes.pending_xref("", refdomain=domain, reftype=kind, reftarget=name, refdoc=here)
            found = self.env.domains[domain].resolve_xref(self.env, here, self.app.builder, kind, name, xref, node.deepcopy())
            if found is not None:
                node.replace_self(found)


def _within(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, kinds):
            return True
        parent = parent.parent
    return False


def from_cpp_to_c(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement) -> Any:
    """A type of C in the signature of a C++ method."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "cpp" or not re.match(r"^(heddle|HEDDLE)_\w+$", target):
        return None
    return env.domains.c_domain.resolve_xref(env, node["refdoc"], app.builder, "identifier", target, node, contnode)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("missing-reference", from_cpp_to_c)
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
