"""The texts of planted faults, and their ranks."""

import pytest

from spbench_core.catalog.planted_fault import JOB_FAULTS, PlantedFault, parse_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill", PlantedFault("kill")),
        ("slow=1.5", PlantedFault("slow", 1.5)),
        ("slow,rank=0", PlantedFault("slow", rank=0)),
        ("slow=2,rank=12", PlantedFault("slow", 2.0, 12)),
        ("full:drop-gradient,rank=1", PlantedFault("full:drop-gradient", rank=1)),
    ],
)
def test_reads_name_factor_and_rank(text, fault):
    assert parse_fault(text) == fault


@pytest.mark.parametrize("options", ["", "1", "rank", "rank=", "rank=x", "rank=1,", "rang=1"])
def test_rejects_another_option_than_one_rank(options):
    with pytest.raises(ValueError, match="give the number of a rank after the comma"):
        parse_fault(f"kill,{options}")


@pytest.mark.parametrize("name", sorted(JOB_FAULTS))
def test_fault_of_all_ranks_takes_no_rank(name):
    assert parse_fault(name) == PlantedFault(name)
    with pytest.raises(ValueError, match=f"{name} takes no rank"):
        parse_fault(f"{name},rank=0")


def test_fault_is_in_the_last_rank_unless_another_is_chosen():
    assert PlantedFault("kill").find_rank(4) == 3
    assert PlantedFault("kill", rank=1).find_rank(4) == 1


def test_explains_which_ranks_there_are():
    assert PlantedFault("kill").explain_missing_rank(1) is None
    assert PlantedFault("kill", rank=3).explain_missing_rank(4) is None
    assert PlantedFault("kill", rank=4).explain_missing_rank(4) == "no rank 4, only 0 to 3"
    assert PlantedFault("kill", rank=4).explain_missing_rank(1) == "no rank 4, only rank 0"
