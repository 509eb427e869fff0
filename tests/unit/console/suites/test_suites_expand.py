"""Expansion of sweeps into cases: order, ids, excludes and numbers of ranks."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.errors import SuiteError
from spbench.suites.expand import Sweep, SweptValue, format_case_id, format_label
from spbench.suites.loader import load_suite_text

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"


def load_cases(entry, overrides=()):
    return load_suite_text(f"{HEAD}  - {entry}\n", Path("s.yaml"), overrides).cases


def load_ids(entry, overrides=()):
    return [case.id for case in load_cases(entry, overrides)]


def draw_columns(names, length):
    return st.dictionaries(st.sampled_from(names), length, max_size=3)


@st.composite
def draw_sweeps(draw):
    lists = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)
    rows = draw(st.integers(1, 3))
    in_step = st.lists(st.integers(0, 99), min_size=rows, max_size=rows, unique=True)
    matrix = draw(draw_columns("abc", lists))
    zipped = draw(draw_columns("xyz", in_step))

    def label_values(columns):
        return {
            key: [SweptValue(v, format_label(v)) for v in values] for key, values in columns.items()
        }

    return Sweep(label_values(matrix), label_values(zipped))


@pytest.mark.slow
@given(draw_sweeps())
@settings(max_examples=100)
def test_points_are_the_product_in_file_order(sweep):
    points = list(sweep.iterate_points())
    assert len(points) == sweep.size
    assert all(list(point) == sweep.keys for point in points)
    identities = [format_case_id("n", point) for point in points]
    assert len(set(identities)) == len(points)
    rows = list(zip(*sweep.zipped.values(), strict=True)) or [()]
    product = itertools.product(itertools.product(*sweep.matrix.values()), rows)
    assert [tuple(p.values()) for p in points] == [items + row for items, row in product]


@given(draw_sweeps())
def test_first_key_changes_slowest(sweep):
    positions = {key: [item.value for item in items] for key, items in sweep.matrix.items()}
    order = [
        [positions[key].index(p[key].value) for key in sweep.matrix] for p in sweep.iterate_points()
    ]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "3"),
        ("square", "square"),
        (True, "true"),
        (1000.0, "1000"),
        (0.25, "0.25"),
        ([8, 64], "8+64"),
        (["8", "1 KiB"], "8+1KiB"),
        ("8, 64", "8+64"),
        ("1x4", "1x4"),
    ],
)
def test_formats_values_in_an_id(value, expected):
    assert format_label(value) == expected


def test_id_has_matrix_before_zip_in_file_order():
    assert load_ids(
        "{name: a, benchmark: halo.exchange, zip: {image_size: [64, 65x96], seed: [1, 2]},"
        " matrix: {slice_method: [vertical, square], halo_len: [1, 3]}}"
    ) == [
        f"a[slice_method={method},halo_len={halo},{row}]"
        for method in ("vertical", "square")
        for halo in (1, 3)
        for row in ("image_size=64,seed=1", "image_size=65x96,seed=2")
    ]


def test_id_without_sweep_is_the_name():
    assert load_ids("{name: a, benchmark: memory.copy}") == ["a"]


def test_id_shows_lists_and_bytes_as_written():
    assert load_ids(
        '{name: a, benchmark: link.pingpong, matrix: {sizes: [[8, 64], [1KiB], "8,1KiB"]}}'
    ) == ["a[sizes=8+64]", "a[sizes=1KiB]", "a[sizes=8+1KiB]"]
    sizes = [
        c.params["sizes"]
        for c in load_cases("{name: a, benchmark: link.pingpong, matrix: {sizes: [[8, 1KiB]]}}")
    ]
    assert sizes == [[8, 1024]]


def test_id_shows_other_values_as_parsed():
    assert load_ids(
        '{name: a, benchmark: halo.exchange, matrix: {grid: ["4X1"], halo_len: ["2", 3.0]}}'
    ) == ["a[grid=4x1,halo_len=2]", "a[grid=4x1,halo_len=3]"]


def test_sweep_replaces_the_value_in_params():
    entry = "{name: x, benchmark: halo.exchange, params: {halo_len: 3}, matrix: {halo_len: [1, 2]}}"
    assert [case.params["halo_len"] for case in load_cases(entry)] == [1, 2]


def test_exclude_removes_points():
    entry = (
        "{name: a, benchmark: halo.exchange, exclude: [{slice_method: square, halo_len: 1}, "
        "{halo_len: 5}], matrix: {slice_method: [vertical, square], halo_len: [1, 3, 5]}}"
    )
    assert load_ids(entry) == [
        "a[slice_method=vertical,halo_len=1]",
        "a[slice_method=vertical,halo_len=3]",
        "a[slice_method=square,halo_len=3]",
    ]


def test_excluded_point_may_be_invalid():
    entry = (
        "{name: a, benchmark: halo.exchange, exclude: [{slice_method: square, "
        "num_spatial_parts: 2}], matrix: {slice_method: [vertical, square],"
        " num_spatial_parts: [2, 4]}}"
    )
    assert [case.np for case in load_cases(entry)] == [2, 4, 4]


def test_np_follows_from_parameters_or_is_swept():
    assert [c.np for c in load_cases("{name: a, benchmark: halo.exchange}")] == [4]
    assert [c.np for c in load_cases("{name: a, benchmark: halo.exchange, np: 4}")] == [4]
    assert [c.np for c in load_cases("{name: a, benchmark: memory.copy}")] == [None]
    assert [c.np for c in load_cases("{name: a, benchmark: memory.copy, np: 3}")] == [3]
    swept = load_cases("{name: a, benchmark: link.pingpong, matrix: {np: [2, 4]}}")
    assert [(c.id, c.np) for c in swept] == [("a[np=2]", 2), ("a[np=4]", 4)]
    entry = "{name: a, benchmark: halo.exchange, zip: {np: [2, 3], num_spatial_parts: [2, 3]}, "
    zipped = load_cases(entry + "params: {slice_method: vertical}}")
    assert [case.np for case in zipped] == [2, 3]


def test_wrong_np_is_reported_once_for_all_its_points():
    with pytest.raises(SuiteError) as caught:
        load_cases(
            "{name: a, benchmark: halo.exchange, np: 4, "
            "matrix: {grid: [2x2, 3x3], halo_len: [1, 2, 3]}}"
        )
    (error,) = caught.value.diagnostics
    assert error.message == (
        "np is 4, but halo.exchange with grid=3x3,halo_len=1 and 2 more runs on 9 ranks: "
        "set np to 9, or change num_spatial_parts (9) or grid (3x3)"
    )


def test_rejects_an_oversized_sweep_without_expanding_it():
    many = "[" + ", ".join(map(str, range(1, 200))) + "]"
    keys = ("halo_len", "batch_size", "in_channels", "seed", "warmup", "iterations", "image_size")
    swept = ", ".join(f"{key}: {many}" for key in keys)
    with pytest.raises(SuiteError, match=f"the sweep makes {199**7} cases; one entry may make"):
        load_cases(f"{{name: a, benchmark: halo.exchange, matrix: {{{swept}}}}}")


def test_repeat_does_not_multiply_cases():
    (case,) = load_cases("{name: a, benchmark: memory.copy, repeat: 5}")
    assert (case.id, case.repeat) == ("a", 5)


SWEEP = "benchmark: allreduce.sweep, params: {min_bytes: 8, max_bytes: 64, factor: 8"


def test_benchmark_expands_its_own_cases():
    cases = load_cases(f"{{name: a, {SWEEP}, algorithm: [native, ring]}}, np: 2}}")
    assert [case.id for case in cases] == [
        f"a[algorithm={name},size={size}]" for name in ("native", "ring") for size in (8, 64)
    ]
    assert [case.params["algorithm"] for case in cases] == ["native", "native", "ring", "ring"]
    assert cases[0].params["min_bytes"] is None


def test_keys_of_the_benchmark_follow_the_swept_ones():
    ids = load_ids(f"{{name: a, {SWEEP}, algorithm: ring}}, matrix: {{dtype: [fp64, bf16]}}}}")
    assert ids == [f"a[dtype={d},size={s}]" for d in ("fp64", "bf16") for s in (8, 64)]
    # A key that is swept already keeps its position.
    ids = load_ids(f"{{name: a, {SWEEP}}}, matrix: {{algorithm: [[ring, flat], chain]}}}}")
    assert ids == [f"a[algorithm={a},size={s}]" for a in ("ring", "flat", "chain") for s in (8, 64)]


def test_expanded_cases_must_fit_the_ranks(messages):
    with messages.raises(SuiteError):
        load_ids(f"{{name: a, {SWEEP}, algorithm: [ring, muji_4]}}, np: 3}}")


@pytest.mark.slow
def test_expanded_cases_count_toward_the_limit(messages):
    many = "{min_bytes: 0, max_bytes: 1GiB, factor: 1.01}"
    seeds = ", ".join(map(str, range(10)))
    sweep = f"params: {many}, matrix: {{seed: [{seeds}]}}"
    with messages.raises(SuiteError):
        load_ids(f"{{name: a, benchmark: allreduce.sweep, {sweep}}}")
