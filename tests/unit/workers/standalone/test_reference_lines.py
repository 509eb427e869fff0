"""The command lines of the reference scripts in docs/references.md."""

import re
import shlex

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.standalone.program import list_names, read_command_line
from spbench_workers.standalone.script_command_line import SCRIPTS, create_script_parser
from support.paths import DOCS
from support.reference_commands import REFERENCE_COMMANDS


def parse_line(alias, arguments="", ranks=None):
    arguments = [alias, *shlex.split(arguments)]
    return read_command_line(arguments, find_rank_count(arguments) if ranks is None else ranks)


def find_rank_count(arguments):
    """Return the number of ranks that the error asks for."""
    try:
        read_command_line(arguments, 10**6)
    except ValueError as error:
        if match := re.search(r"runs on (\d+) ranks", str(error)):
            return int(match[1])
        raise
    return 1


@pytest.mark.parametrize("line", REFERENCE_COMMANDS, ids=lambda line: f"{line[3]} {line[4]}")
def test_parses_each_documented_line(line):
    ranks, file, script_arguments, alias, arguments = line
    assert SCRIPTS[alias].file.split("/")[-1] == file
    # Arguments of launch.py for workers and servers follow.
    assert arguments.split()[: len(script_arguments.split())] == script_arguments.split()
    read_line = parse_line(alias, arguments, ranks)
    assert read_line.warnings == ()
    assert len(read_line.cases) == 1


def test_lines_include_each_row_of_the_page():
    rows = re.findall(r"^\| \d+ \|", (DOCS / "references.md").read_text(), re.MULTILINE)
    assert len(rows) == len(REFERENCE_COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "expected"), [("--times -4", "-4"), ("--times 0", "0"), ("--batch-size -1", "-1")]
)
def test_reports_an_invalid_number_as_typed(arguments, expected):
    with pytest.raises(ValueError, match=f"{expected} is below"):
        parse_line("resnet_gems", arguments, 2)


def test_each_script_has_a_line():
    assert {alias for _, _, _, alias, _ in REFERENCE_COMMANDS} == set(SCRIPTS)


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("resnet_sp", {"scheme": "sp", "batch_size": 32, "image_size": 32, "grid": "2x2"}),
        ("resnet_lp", {"optimizer": "sgd", "weight_decay": 1e-4, "learning_rate_decay": 1.0}),
        ("resnet_lp --num-epochs 2", {"learning_rate_decay": 0.85, "num_epochs": 2}),
        ("amoebanet_lp", {"num_layers": 18, "num_filters": 416, "split_size": 2}),
        ("halo_exchange", {"image_size": 8, "halo_len": 1, "warmup": 10, "iterations": 100}),
        ("halo_compute", {"out_channels": 256, "in_channels": 1, "grid": "2x2"}),
        ("halo_conv --CPU", {"device": "cpu"}),
        ("measure", {"num_layers": 152, "gpus": [0, 1], "optimizer": "none", "num_batches": 5}),
        ("measure --network vgg", {"num_layers": None}),
        ("resnet_inference", {"arch": "resnet50", "enable_evaluation": True}),
        ("resnet_inference --arch resnet101", {"arch": "resnet101"}),
        ("resnet_inference --depth 11", {"arch": None, "depth": 11}),
        # GEMS: each direction has the batch, and two loaded batches are a pair.
        ("resnet_gems --batch-size 3", {"batch_size": 6, "times": 1}),
        ("resnet_gems --batch-size 3 --times 4", {"batch_size": 6, "times": 2}),
        ("resnet_lp --checkpoint here", {"checkpoint": "here/InferHiRes.pth"}),
        ("resnet_lp --checkpoint a.pt", {"checkpoint": "a.pt"}),
        ("resnet_lp --image-size 64 --image-size 48", {"image_size": 48}),
    ],
)
def test_aliases_have_the_defaults_of_the_script(alias, expected):
    alias, _, arguments = alias.partition(" ")
    line = parse_line(alias, arguments)
    [params] = line.cases
    assert {name: params[name] for name in expected} == expected
    assert line.warnings == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("resnet_sp --num-filters 416 --num-layers 18", []),
        ("resnet_sp --num-filters 214", ["--num-filters 214 does nothing: it is AmoebaNet's"]),
        ("resnet_lp --slice-method square --times 1 --fused-layers 1", []),
        ("resnet_lp --halo-D2", ["--halo-D2 does nothing: in scheme lp, only in sp, gems_sp"]),
        ("resnet_lp --halo-D2 false", []),
        ("resnet_lp --halo-D2 off --enable-master-comm-opt false", []),
        ("halo_exchange --fp16-allreduce false", []),
        ("resnet_lp --times 2", ["--times 2 does nothing: in scheme lp"]),
        ("resnet_sp --fused-layers 3", ["--fused-layers 3 does nothing: without halo_D2"]),
        ("resnet_lp --learning-rate-decay 0.5", ["0.5 does nothing: in one epoch"]),
        ("resnet_lp --datapath /x", ["--datapath /x does nothing: with app synthetic"]),
        ("resnet_lp --enable-evaluation --optimizer adam", ["adam does nothing: with enable_eval"]),
        ("halo_exchange --fp16-allreduce", ["--fp16-allreduce does nothing: nothing is summed"]),
        ("halo_exchange --out-channels 256", []),
        ("halo_conv --enable-val-conv", []),
        ("halo_conv --enable-deterministic", ["--enable-deterministic does nothing"]),
    ],
)
def test_warns_of_ignored_flags_unless_the_script_has_them(line, expected):
    alias, _, arguments = line.partition(" ")
    warnings = parse_line(alias, arguments).warnings
    assert len(warnings) == len(expected)
    for warning, part in zip(warnings, expected, strict=True):
        assert warning.startswith(f"{alias}: --")
        assert part in warning


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("resnet_lp --scheme sp", "unrecognized arguments: --scheme sp"),
        ("resnet_lp --image-siz 3", "unrecognized arguments"),
        ("resnet_lp --precision fp_17", "'fp_17' is none of"),
        ("resnet_lp --times x", "times: 'x' is not a whole number"),
        ("resnet_sp --num-layers x --nonsense", "unrecognized arguments: --nonsense"),
        # Parameters that only the catalog has stay strict.
        ("resnet_lp --rounds 2", "rounds does nothing without schedule interleaved"),
        ("model.resnet --scheme lp --halo-D2", "halo_D2 does nothing in scheme lp"),
    ],
)
def test_rejects_invalid_arguments(line, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_command_line(line.split(), 2)
    assert "\n" not in str(caught.value)


def test_measure_prints_its_arguments_first():
    [line] = parse_line("measure", "--kvstore local --gpus 0,1,2 --test-results 0").first_lines
    assert line == (
        "Namespace(disp_batches=1, gc_type='none', gpus='0,1,2', image_shape='3,224,224', "
        "kv_store='local', network='resnet', num_batches=5, num_classes=1000, num_layers=152, "
        "optimizer='None', test_results=0)"
    )


def test_v_increases_verbosity():
    assert parse_line("resnet_lp", "-v").verbose
    assert not parse_line("resnet_lp").verbose


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_the_help_lists_flags_with_defaults_of_the_script(script):
    text = " ".join(create_script_parser(script).format_help().split())
    for flag in script.flags:
        assert flag.flag in text
    if script.benchmark.startswith("model"):
        assert "(default: 0.0001)" in text
        assert "vertical divides the width" in text
    assert f"{BENCHMARKS[script.benchmark].name} with the flags and defaults of" in text


def find_help(alias, flag):
    text = " ".join(create_script_parser(SCRIPTS[alias]).format_help().split("options:")[1].split())
    return re.search(rf" {flag}(?: \[?V\]?)? (.*?) --", text)[1]


def test_the_help_describes_flags_of_the_alias(messages):
    messages.check(find_help("resnet_sp", "--checkpoint"))
    assert find_help("resnet_sp", "--times").endswith("in GEMS alone (default: 1)")
    assert "each direction" in find_help("resnet_gems", "--batch-size")
    messages.check(find_help("amoebanet_gems_sp", "--times"))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_the_help_of_a_flag_has_one_default(script):
    for flag in script.flags:
        if flag.param and flag.default is not None:
            help_text = find_help(script.name, flag.flag) if flag.alias is None else ""
            assert "; else" not in help_text
            assert "(default)" not in help_text


def test_the_overview_lists_benchmarks_and_scripts():
    text = list_names()
    assert all(f"  {name} " in text for name in (*BENCHMARKS, *SCRIPTS))
