"""Profiles: what a model costs, layer by layer, and the states between which it can be cut."""
