"""How the pages are built: ``sphinx-build -W --keep-going -b html docs docs/_build/html``, without a network."""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pictures  # noqa: E402 (beside this file)

project = "taskloom"
author = "The taskloom developers"
project_copyright = author
version = release = version_of("taskloom")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "gallery/*.py", "gallery/*.ipynb"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3

# The reference is made of the docstrings; what a class inherits without a word of its own is described at its base class.
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_inherit_docstrings = False
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "member-order": "bysource"}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("taskloom",),
    "reference_url": {"taskloom": None},
    "capture_repr": ("_repr_html_",),
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "min_reported_time": 1,
    "image_srcset": ["2x"],
    "copyfile_regex": r".^",
}

html_theme = "furo"
html_title = f"taskloom {version}"
html_static_path = ["_static"]
html_css_files = ["taskloom.css"]
html_favicon = "_static/mark.svg"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_logo": "mark.svg",
    "dark_logo": "mark.svg",
    "light_css_variables": {"color-brand-primary": "#0b6e6e", "color-brand-content": "#0b6e6e"},
    "dark_css_variables": {"color-brand-primary": "#5ec8c0", "color-brand-content": "#5ec8c0"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _skip(app, kind, name, member, skip, options):  # noqa: ARG001 (Sphinx calls it so)
    """Leave out what scikit-learn brings along: it has pages of its own, and its docstrings link to them."""
    home = getattr(member, "__module__", None) or ""
    routed = name.startswith("set_") and name.endswith("_request")
    return True if home.startswith("sklearn") or routed or name == "get_metadata_routing" else None


def _escape(app, kind, name, obj, options, lines):  # noqa: ARG001
    """``coef_, intercept_`` in a list of attributes are names, not links."""
    lines[:] = [re.sub(r"_(?=, |$)", r"\\_", line) if re.match(r"\w+_, \w+_", line) else line for line in lines]


def _pages_there_are(app, page, source):  # noqa: ARG001
    """Pages that are named by a pattern may be missing; Sphinx would warn of a pattern that matches nothing."""
    if page == "index":
        lines = source[0].split("\n")
        source[0] = "\n".join(line for line in lines if not line.endswith("*") or any(HERE.glob(f"{line}.md")))


def setup(app):
    app.connect("autodoc-process-docstring", _escape, priority=100)
    app.connect("source-read", _pages_there_are)
    app.connect("autodoc-skip-member", _skip)
    app.connect("builder-inited", lambda _: pictures.draw(HERE / "_pictures"))
