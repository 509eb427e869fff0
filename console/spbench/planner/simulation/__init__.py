"""Simulation of one step of a plan: its time and its memory."""
