"""Connections of ranks and relays, which are admitted by their token."""
