"""Settings of Sphinx for the site; scripts/build_site.sh calls it with the folder that generate/stage.py has laid out."""

import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))

project = "Heddle"
author = "the authors of Heddle"
copyright = "the authors of Heddle; BSD 3-Clause"
release = re.search(r"project\(heddle VERSION ([0-9.]+)", (here.parent.parent / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
version = release

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design", "generate.links"]
exclude_patterns = ["_raw/**"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
language = "en"
highlight_language = "text"
primary_domain = "c"
nitpicky = True
# Names of other libraries and of template parameters, which no page here documents.
nitpick_ignore_regex = [
    (r"cpp:identifier", r"(std|T|T2|Post|Handle|Arguments|close|function|kExtent)(::.*)?"),
    (r"cpp:identifier", r"(u?int\d+_t|U?INT\d+_MAX|size_t|Owner|detail)(::.*)?"),
    (r"c:identifier", r"(u?int\d+_t|size_t|ptrdiff_t|TYPE|shmemx?_\w+|T)"),
    (r"py:(class|exc|obj)", r"(?!heddle).*"),
]
maximum_signature_line_length = 88
add_function_parentheses = False
toc_object_entries_show_parents = "hide"
suppress_warnings = ["misc.highlighting_failure"]  # code with an ellipsis is shown all the same

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 6
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_here_doc_delimiter = "EOF"

html_theme = "furo"
html_title = f"Heddle {release}"
html_static_path = [str(here / "_static")]
html_css_files = ["site.css"]
html_favicon = str(here / "_static" / "favicon.svg")
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#8a3d12", "color-brand-content": "#8a3d12", "color-brand-visited": "#6b4a86"},
    "dark_css_variables": {"color-brand-primary": "#f0a06a", "color-brand-content": "#f0a06a", "color-brand-visited": "#c9a6e8"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
