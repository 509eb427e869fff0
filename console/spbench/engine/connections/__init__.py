"""Connections of ranks and relays: let in by their token, their lines handed to a job."""
