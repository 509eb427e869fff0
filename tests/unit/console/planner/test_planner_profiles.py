"""Tests of profiles: the torchgraph and JSON formats, and batch sizes."""

import json
import math
from copy import deepcopy

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.errors import PlannerError, ProfileError
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.json_file import read_profile_json, write_profile_json
from spbench.planner.profile.json_reader import ProfileFile
from spbench.planner.profile.layers import PER_BATCH, BatchMeasurement, LayerProfile, Profile
from spbench.planner.profile.linear import find_linear_states
from spbench.planner.profile.torchgraph import read_torchgraph
from spbench.planner.profile.work import compute_work
from spbench.suites.settings import build_json_schema
from support.paths import EXAMPLES, SHARED_DATA
from support.planner.sample_profiles import make_chain, make_diamond, make_layer, render_torchgraph

NODE = (
    "{} -- {} -- forward_compute_time={}, backward_compute_time=2, activation_size={},"
    " parameter_size=4"
)


def node(name="n1", description="conv", forward=1, activation=3):
    return NODE.format(name, description, forward, activation)


def read(*lines):
    return read_torchgraph("\n".join(lines) + "\n", "p.txt", "p", 8)


def read_errors(*lines):
    with pytest.raises(ProfileError) as caught:
        read(*lines)
    return str(caught.value).splitlines()


# torchgraph


def test_reads_torchgraph():
    profile = read(
        node(description="Conv2d(3, 64, bias=False)"),
        "",
        node("n2", activation="[1.5; 2.5]") + " -- stage_id=1",
        "\tn1 -- n2",
    )
    assert profile == Profile(
        "p",
        8,
        (
            LayerProfile("n1", "Conv2d(3, 64, bias=False)", 1, 2, 3, 4),
            LayerProfile("n2", "conv", 1, 2, 4, 4),
        ),
        ((0, 1),),
    )


@pytest.mark.parametrize(
    ("lines", "errors"),
    [
        ([""], ["p.txt:1:1: error: the profile has no nodes"]),
        (["what is this"], ["p.txt:1:1: error: this is no node"]),
        ([node(), node()], ["p.txt:2:1: error: duplicate node n1 (first on line 1)"]),
        ([node(forward=-1)], ["p.txt:1:15: error: forward_compute_time: -1 is negative"]),
        ([node(forward="nan")], ["forward_compute_time: nan is no finite number"]),
        ([node(forward="5e-324")], ["5e-324 is out of range: give 0 or from 1e-9 to 1e12 ms"]),
        ([node(forward="soon")], ["p.txt:1:15: error: forward_compute_time: 'soon' is no number"]),
        ([node(activation="[1; -2]")], ["activation_size: [1; -2] is negative"]),
        ([node().replace("forward_compute_time=1, ", "")], ["forward_compute_time is missing"]),
        ([node().replace("forward", "foward")], ["did you mean forward", "is missing"]),
        ([node() + ", parameter_size=4"], ["duplicate parameter_size"]),
        ([node() + " -- stage 3"], ["'stage 3' is no stage_id=NUMBER"]),
        ([node(), "\tn1 -- n7"], ["p.txt:2:1: error: no node above is called 'n7'"]),
        (["\tn1 -- n2", node(), node("n2")], ["called 'n1'", "called 'n2'"]),
        ([node(), "\tn1"], ["p.txt:2:1: error: this is no edge"]),
        ([node(), node("n2"), "\tn1 -- n2", "\tn1 -- n2"], ["p.txt:4:1: error: duplicate edge"]),
        ([node(), "\tn1 -- n1"], ["p.txt:2:1: error: this edge closes a cycle: n1 -> n1"]),
        ([NODE.replace("time=2", "time=0").format("a", "b", 0, 1)], ["the nodes take no time"]),
    ],
)
def test_torchgraph_errors_have_their_position(lines, errors):
    lines = read_errors(*lines)
    assert len(lines) == len(errors)
    assert all(any(error in line for line in lines) for error in errors)


def test_all_torchgraph_errors_are_reported_at_once():
    assert len(read_errors("garbage", node(forward=-1), "\tn1 -- n9")) == 3


def test_cycle_is_reported_at_one_of_its_edges():
    nodes = [node(name) for name in ("a", "b", "c")]
    [line] = read_errors(*nodes, "\ta -- b", "\tb -- c", "\tc -- b")
    assert line.startswith(("p.txt:5:1", "p.txt:6:1"))
    assert "b -> c -> b" in line or "c -> b -> c" in line


@pytest.mark.parametrize("path", sorted(SHARED_DATA.glob("profiles/*/*.txt")), ids=lambda p: p.stem)
def test_shared_profiles_round_trip(path):
    if path.name == "LICENSE.txt":
        return
    profile = load_profile(path, 32)
    assert read_torchgraph(render_torchgraph(profile), "p", profile.name, 32) == profile


# JSON


def document(**changes):
    layers = [
        {
            "name": name,
            "forward_ms": 1,
            "backward_ms": 2.5,
            "activation_bytes": 10,
            "parameter_bytes": 20,
        }
        for name in ("a", "b")
    ]
    return {"schema": "spbench.profile/1", "batch_size": 4, "layers": layers, **changes}


def json_errors(content, **options):
    text = content if isinstance(content, str) else json.dumps(content, **options)
    with pytest.raises(ProfileError) as caught:
        read_profile_json(text, "p.json", "p")
    return str(caught.value)


def test_layers_without_edges_form_a_chain():
    profile = read_profile_json(json.dumps(document()), "p.json", "p")
    assert (profile.name, profile.edges, profile.batch_size) == ("p", ((0, 1),), 4)
    assert profile.layers[0] == LayerProfile("a", "", 1.0, 2.5, 10.0, 20.0)


def test_json_errors_have_line_and_column(messages):
    content = document()
    content["layers"][1]["forward_ms"] = -3
    messages.check(json_errors(content, indent=1))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"schema": "x"}, "p.json:1:12: error: schema must be spbench.profile/1, not 'x'"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"batch_size": 10**30}, "batch_size must be at most 262144, not 1000000"),
        ({"layers": []}, "layers must be a list with at least one item, not an empty list"),
        ({"layers": [3]}, "layers[0] must be a mapping, not 3"),
        ({"layers": [{"name": "a"}]}, "layers[0] lacks the key 'forward_ms'"),
        ({"edges": [["a", "z"]]}, "no layer is called 'z'"),
        ({"edges": [["a", "b"], ["b", "a"]]}, "this edge closes a cycle"),
        ({"edges": [["a", "b"], ["a", "b"]]}, "duplicate edge"),
        ({"edges": ["ab"]}, "an edge is a pair of names"),
        ({"edge": []}, "unknown key 'edge' in the profile (did you mean edges?)"),
        ({"also": [{"batch_size": 4, "layers": []}]}, "layers must be a list"),
        ({"name": 3}, "name must be text, not 3"),
        ({"origin": None}, "origin must be a mapping, not empty"),
        ({"origin": {}}, "origin lacks the key 'model'"),
        ({"origin": {"model": "m", "rank": 2}}, "unknown key 'rank' in origin (did you mean ranks"),
        ({"origin": {"model": "m", "ranks": 0}}, "origin.ranks must be at least 1, not 0"),
        (
            {"origin": {"model": "m", "params": {"depth": [1]}}},
            "origin.params.depth must be text or a whole number or a number or true or false or a "
            "mapping, not",
        ),
    ],
)
def test_rejects_invalid_json_fields(changes, error):
    assert error in json_errors(document(**changes))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"schema": ', "p.json:1:12: error: invalid JSON"),
        ("[]", "p.json:1:1: error: a profile is an object that begins with 'schema'"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("3", "a profile is an object"),
        ("[" * 100_000, "p.json:1:1: error: this is no profile: its brackets are nested too"),
        ('{"batch_size": %s}' % ("9" * 5000), "batch_size must be a whole number, not inf"),
    ],
)
def test_rejects_text_that_is_not_a_profile(text, error):
    assert error in json_errors(text)


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "1e400"])
def test_rejects_infinite_numbers(digits):
    text = json.dumps(document()).replace("2.5", digits, 1)
    assert "p.json:1:" in (errors := json_errors(text))
    assert "backward_ms is no finite number" in errors


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("forward_ms", 5e-324, "forward_ms is out of range: give 0 or from 1e-9 to 1e12 ms"),
        ("forward_ms", 1e308, "forward_ms is out of range"),
        ("parameter_bytes", 1e308, "is out of range: give 0 or from 0.001 to 1e18 bytes"),
    ],
)
def test_rejects_numbers_out_of_range(key, value, message):
    content = document()
    content["layers"][0][key] = value
    assert message in json_errors(content)


def test_missing_layers_cause_one_error(messages):
    layers = document()["layers"]
    also = [{"batch_size": 8, "layers": layers}]
    errors = json_errors(document(layers=[], edges=[["a", "b"]], also=also))
    messages.check(errors)


def test_rejects_nan_and_text_as_time(messages):
    content = document()
    content["layers"][0]["forward_ms"] = math.nan
    content["layers"][1]["backward_ms"] = "1"
    errors = json_errors(content)
    messages.check(errors)


def test_all_profile_errors_are_reported_at_once(messages):
    content = document(
        edges=[["a", "z"], ["a", "b"], ["a", "b"]],
        also=[{"batch_size": 4, "layers": document()["layers"][:1]}],
        layer=[],
    )
    content["layers"][0]["forward_ms"] = -1
    del content["layers"][1]["parameter_bytes"]
    content["layers"][1]["name"] = "a"
    errors = [line.partition(" error: ")[2] for line in json_errors(content).splitlines()]
    messages.check(errors)


SCHEMA = build_json_schema(ProfileFile)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLE = json.loads((EXAMPLES / "resnet-20.json").read_text())


def test_schema_accepts_readable_profiles():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert "also" in EXAMPLE
    assert "origin" in EXAMPLE
    for content in (EXAMPLE, document()):
        read_profile_json(json.dumps(content), "p.json", "p")
        VALIDATOR.validate(content)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "spbench.profile/2"),
        (("name",), 3),
        (("batch_size",), 0),
        (("batch_size",), 1 << 19),
        (("layers",), []),
        (("layers", 0, "name"), ""),
        (("layers", 0, "forward_ms"), "1"),
        (("layers", 0, "forward_ms"), -1.0),
        (("layers", 0, "forward_ms"), 1e-12),
        (("layers", 0, "parameter_bytes"), None),
        (("layers", 0, "colour"), "red"),
        (("edges", 0), ["stem"]),
        (("also", 0, "layers", 0, "kept_bytes"), 1e30),
        (("also", 0, "batch_size"), 2.5),
        (("origin", "ranks"), 0),
        (("origin", "params", "depth"), [1]),
        (("origin",), None),
    ],
)
def test_schema_rejects_invalid_profiles(path, value):
    content = deepcopy(EXAMPLE)
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert json_errors(content)
    assert not VALIDATOR.is_valid(content)


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)
numbers = st.just(0.0) | st.floats(min_value=1e-3, max_value=1e11, allow_nan=False)


@st.composite
def profiles(draw):
    layer_names = draw(st.lists(names, min_size=1, max_size=6, unique=True))

    def draw_layers(parameters):
        return tuple(
            LayerProfile(
                name,
                draw(names),
                draw(numbers) + 1.0,
                draw(numbers),
                draw(numbers),
                parameter_bytes,
                draw(numbers),
                draw(st.none() | numbers),
            )
            for name, parameter_bytes in zip(layer_names, parameters, strict=True)
        )

    parameters = [draw(numbers) for _ in layer_names]
    pairs = [(a, b) for b in range(len(layer_names)) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    sizes = draw(st.lists(st.integers(1, 99), min_size=1, max_size=3, unique=True))
    also = tuple(BatchMeasurement(size, draw_layers(parameters)) for size in sorted(sizes[1:]))
    return Profile("p", sizes[0], draw_layers(parameters), tuple(edges), also)


@pytest.mark.slow
@settings(max_examples=60)
@given(profiles())
def test_json_round_trips(profile):
    assert read_profile_json(write_profile_json(profile), "p.json", "other") == profile


@pytest.mark.slow
@settings(max_examples=60)
@given(profiles())
def test_torchgraph_round_trips_its_fields(profile):
    parsed = read_torchgraph(render_torchgraph(profile), "p.txt", "p", profile.batch_size)
    expected = [(row.name, row.forward_ms, row.activation_bytes) for row in profile.layers]
    assert [(row.name, row.forward_ms, row.activation_bytes) for row in parsed.layers] == expected
    assert parsed.edges == profile.edges


@settings(max_examples=60)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_garbage_raises_profile_error(text):
    for reader in (lambda: read(text), lambda: read_profile_json(text, "p.json", "p")):
        with pytest.raises(ProfileError):
            reader()


# Files


def test_torchgraph_needs_a_batch_size(tmp_path, messages):
    path = tmp_path / "p.txt"
    path.write_text(node())
    with messages.raises(PlannerError):
        load_profile(path)
    assert load_profile(path, 3).batch_size == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), (" \n", "is empty"), (" null\n", "a profile is an object")],
)
def test_rejects_empty_files(tmp_path, text, message):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(PlannerError, match=message):
        load_profile(path)


def test_json_batch_size_must_match(tmp_path, messages):
    path = tmp_path / "p.json"
    path.write_text(write_profile_json(make_chain([1.0], batch_size=4)))
    assert load_profile(path) == load_profile(path, 4)
    with messages.raises(PlannerError):
        load_profile(path, 5)


@pytest.mark.parametrize("raw", [b"\xff\xfe", None])
def test_rejects_unreadable_files(tmp_path, raw):
    path = tmp_path / "p.txt"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(PlannerError, match="cannot read"):
        load_profile(path, 1)


# Profiles themselves


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"layers": ()}, "has no layers"),
        ({"batch_size": 0}, "the batch size 0 is not from 1 to"),
        ({"edges": ((0, 9),)}, "names a layer that is not there"),
        ({"edges": ((0, 1), (0, 1))}, "duplicate edge"),
        ({"edges": ((0, 1), (1, 0))}, "make a cycle"),
        ({"layers": (make_layer("a", -1.0),), "edges": ()}, "forward_ms of a is negative"),
        ({"layers": (make_layer("a", 5e-324),), "edges": ()}, "forward_ms of a is out of range"),
        ({"layers": (make_layer("a", 10**400),), "edges": ()}, "forward_ms of a is out of range"),
        ({"layers": (make_layer("a"), make_layer("a"))}, "duplicate layer a"),
        ({"layers": (make_layer("a", 0.0, 0.0),), "edges": ()}, "take no time"),
        (
            {"further_measurements": (BatchMeasurement(2, (make_layer("z"),)),)},
            "are not its layers",
        ),
        (
            {"further_measurements": (BatchMeasurement(1, make_chain([1.0, 1.0]).layers),)},
            "do not rise",
        ),
    ],
)
def test_rejects_invalid_profiles(change, error):
    valid = make_chain([1.0, 1.0])
    fields = {"batch_size": 1, "layers": valid.layers, "edges": valid.edges, **change}
    with pytest.raises(PlannerError, match=error):
        Profile("p", **fields)


def test_single_measurement_is_scaled_linearly():
    (layer,) = make_chain([1.0], [8.0], [5.0], batch_size=2).scale_layers(6)
    assert (layer.forward_ms, layer.activation_bytes) == (3.0, 24.0)
    assert layer.parameter_bytes == 5.0


@pytest.mark.parametrize(
    ("batch", "ms"), [(4, 6.0), (6, 8.0), (8, 10.0), (16, 18.0), (2, 4.0), (1, 3.0)]
)
def test_times_are_interpolated_between_measurements(batch, ms):
    at_8 = BatchMeasurement(8, (make_layer("a", 10.0),))
    profile = Profile("p", 4, (make_layer("a", 6.0),), (), (at_8,))
    assert profile.scale_layers(batch)[0].forward_ms == pytest.approx(ms)


def test_noisy_measurements_give_no_negative_times():
    at_8 = BatchMeasurement(8, (make_layer("a", 4.0),))
    profile = Profile("p", 4, (make_layer("a", 6.0),), (), (at_8,))
    assert profile.scale_layers(64)[0].forward_ms == 4.0
    assert 1.5 <= profile.scale_layers(1)[0].forward_ms <= 6.0


def test_scaled_layers_may_leave_the_range_of_files():
    profile = Profile("p", 4, (make_layer("a", 1e-9),), ())
    assert profile.scale_layers(1)[0].forward_ms == pytest.approx(2.5e-10)


def test_every_field_but_parameters_grows_with_the_batch():
    assert set(PER_BATCH) == {
        "forward_ms",
        "backward_ms",
        "activation_bytes",
        "working_bytes",
        "kept_bytes",
        "data_ms",
        "weights_ms",
    }


def test_unmeasured_gradient_parts_take_half_each():
    measured = make_layer("a", backward=4.0, data_ms=3.0, weights_ms=2.0)
    assert make_layer("a", backward=4.0).data_and_weights_ms == (2.0, 2.0)
    assert measured.data_and_weights_ms == (3.0, 2.0)
    states = find_linear_states(
        Profile("p", 1, (measured, make_layer("b", backward=4.0)), ((0, 1),))
    )
    assert states.data_s == pytest.approx((0.003, 0.005))
    assert compute_work(states, 2, None).weights_s == pytest.approx((0.0, 0.004, 0.008))


def test_dropped_layers_reconnect_their_edges():
    smaller = make_diamond().drop_layers({0})
    assert [row.name for row in smaller.layers] == ["b", "c", "d"]
    assert smaller.edges == ((0, 2), (1, 2))


def test_suite_file_is_rejected_as_a_profile(tmp_path, messages):
    path = tmp_path / "halo.yaml"
    path.write_text("# Halos.\nschema: spbench.suite/1\nname: halo\n")
    with messages.raises(PlannerError):
        load_profile(path, 8)
