"""Routes of tensors between stages: through each stage, or directly to readers."""

import pytest

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.models.layers import Layer, Model
from spbench_core.models.parts import MapShape
from spbench_core.models.registry import make_model
from spbench_core.models.routes import Route, build_tensor_table, find_routes

IMAGE = MapShape(3, 8, 8)


class Reader(Layer):
    """A layer with named tensors that reads some inputs and makes one new tensor."""

    def __init__(self, name, inputs, read, outputs):
        self.name = name
        self._inputs = inputs
        self._read = read
        self._outputs = outputs

    def output(self, flow):
        return tuple(MapShape(1, 8, 8) for _ in self._outputs)

    def build(self, builder, flow):
        raise AssertionError("these layers are of names alone")

    def drop_name(self):
        return self

    def list_read_inputs(self, inputs):
        return [self._inputs.index(name) for name in self._read]

    def list_passed_inputs(self, outputs):
        return [self._inputs.index(n) if n in self._inputs else None for n in self._outputs]


def make_u_shaped_model():
    """Return a model with nested skips: f reads a, e reads b, the last reads i."""
    rows = [
        ("i", "i", "ia"),
        ("ia", "a", "iab"),
        ("iab", "b", "iabc"),
        ("iabc", "c", "iabd"),
        ("iabd", "bd", "iae"),
        ("iae", "ae", "if"),
        ("if", "if", "g"),
    ]
    layers = (Reader(f"layer{index}", *row) for index, row in enumerate(rows))
    return Model("u", IMAGE, tuple(layers))


def find_model_routes(balance, direct=()):
    return find_routes(
        build_tensor_table(make_u_shaped_model()), list_layer_ranges(balance), direct
    )


def test_the_table_lists_makers_and_readers_of_tensors():
    table = build_tensor_table(make_u_shaped_model())
    assert table.makers == (0, 0, 1, 2, 3, 4, 5, 6)
    assert table.readers == ((0, 6), (1, 5), (2, 4), (3,), (4,), (5,), (6,), ())
    assert table.layer_inputs == (
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
        (0, 1, 2, 4),
        (0, 1, 5),
        (0, 6),
        (7,),
    )
    assert table.select_flow((0, 3)) == (IMAGE, MapShape(1, 8, 8))


def test_without_direct_routes_stages_pass_all_live_tensors():
    routes = find_model_routes((1,) * 7)
    live = routes.table.layer_inputs
    assert routes.routes == tuple(Route(stage, stage + 1, live[stage + 1]) for stage in range(6))
    assert routes.skips == ()


def test_direct_routes_lead_to_the_next_reader():
    routes = find_model_routes((2, 2, 1, 2), None)
    assert routes.routes == (
        Route(0, 1, (2,)),
        Route(0, 3, (0, 1)),
        Route(1, 2, (2, 4)),
        Route(2, 3, (5,)),
    )
    assert [(skip.source, skip.target, skip.stages_passed) for skip in routes.skips] == [(0, 3, 2)]
    assert [routes.list_inputs(stage) for stage in range(4)] == [(0,), (2,), (2, 4), (0, 1, 5)]
    assert [routes.list_outputs(stage) for stage in range(4)] == [(0, 1, 2), (2, 4), (5,), ()]
    assert [routes.find_bypassing(stage) for stage in range(4)] == [set(), {0, 1}, {0, 1}, set()]


def test_direct_routes_can_be_limited_to_stage_pairs():
    routes = find_model_routes((1, 1, 1, 1, 1, 1, 1), {(1, 5)})
    assert Route(1, 5, (1,)) in routes.routes
    assert all(0 in route.tensors for route in routes.routes if not route.stages_passed)
    assert routes.find_bypassing(2) == {1}


def test_routes_of_neighbours_come_first():
    routes = find_model_routes((1,) * 7, None)
    assert [route.source for route in routes.list_incoming(5)] == [4, 1]
    assert [route.target for route in routes.list_outgoing(0)] == [1, 6]
    assert [route.target for route in routes.list_outgoing(1)] == [2, 5]


@pytest.mark.parametrize("balance", [(7,), (3, 4), (2, 3, 2), (1, 2, 3, 1)])
@pytest.mark.parametrize("direct", [None, ()])
def test_stages_receive_all_inputs_and_send_only_own_tensors(balance, direct):
    routes = find_model_routes(balance, direct)
    for stage, (first, last) in enumerate(routes.stages):
        table = routes.table
        received = set(routes.list_inputs(stage))
        own_tensors = {
            tensor for tensor, layer in enumerate(table.makers) if tensor and first <= layer < last
        }
        read = {
            tensor
            for tensor, layers in enumerate(table.readers)
            if any(first <= layer < last for layer in layers)
        }
        assert read <= received | own_tensors
        assert set(routes.list_outputs(stage)) <= received | own_tensors
        if direct is None and stage:
            assert received <= read


SIZES = {
    "resnet": {"depth": 20, "version": 1},
    "amoebanet": {"num_layers": 6, "num_filters": 16},
}


@pytest.mark.parametrize("name", SIZES)
def test_built_in_models_have_no_skips(name):
    sizes = (
        {"depth": 20, "version": 1} if name == "resnet" else {"num_layers": 6, "num_filters": 16}
    )
    model = make_model(name, image_size=(32, 32), num_classes=3, **sizes)
    table = build_tensor_table(model)
    routes = find_routes(table, [(index, index + 1) for index in range(len(model.layers))], None)
    assert routes.skips == ()
    for stage in range(1, len(model.layers)):
        assert table.select_flow(routes.list_inputs(stage)) == model.flows[stage]
