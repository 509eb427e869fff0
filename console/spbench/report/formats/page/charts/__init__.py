"""Drawings of a page, as SVG in the page's own colours."""
