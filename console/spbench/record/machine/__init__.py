"""The machines of a run: what they are, and where on them its ranks are."""
