"""Charts of a page, as SVG with the colours of its style sheet."""
