"""What tests of several files use, and the plugins of pytest that run them."""
