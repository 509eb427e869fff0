"""Suites as an editor and a form change them: text in, text out, all else kept."""
