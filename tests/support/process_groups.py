"""A pytest plugin that groups tests for the processes of `--dist loadgroup`."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist appends the groups to the names of tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that ``--dist loadgroup`` runs in one process, one after the other."""
    for item in items:
        group = find_process_group(item)
        if group and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def find_process_group(item: pytest.Item) -> str | None:
    """Return the name of the group of a test, or None if it can run in any process.

    Launches that several tests of a file share have many ranks, which wait for each other at every
    step: these tests form one group, so that one such launch runs at a time. Tests that start a few
    ranks for themselves mostly wait and have no group. Tests without ranks are grouped by file.
    """
    path = item.nodeid.partition("::")[0]
    if item.get_closest_marker("mpi") is None:
        return path
    return "ranks" if list_shared_fixtures(item) else None


def list_shared_fixtures(item: pytest.Item) -> list[str]:
    """Return the fixtures of a test that its file defines for all of its tests."""
    path = item.nodeid.partition("::")[0]
    assert isinstance(item, pytest.Function)
    return [
        name
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()
        if definitions[-1].scope == "module" and definitions[-1].baseid == path
    ]
