"""A plug-in of spbench."""
