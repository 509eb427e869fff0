"""Routes of tensors between stages: straight past those that do not read them, or along them."""

import pytest

from spbench_core.layout.balance import layer_ranges
from spbench_core.models.layers import Layer, Model
from spbench_core.models.parts import Map
from spbench_core.models.registry import make_model
from spbench_core.models.routes import Route, build_tensor_table, find_routes

IMAGE = Map(3, 8, 8)


class Reader(Layer):
    """A layer that reads some of its inputs by their names, and makes one tensor of its own."""

    def __init__(self, name, given, read, gives):
        self.name = name
        self._given = given
        self._read = read
        self._gives = gives

    def output(self, flow):
        return tuple(Map(1, 8, 8) for _ in self._gives)

    def build(self, builder, flow):
        raise AssertionError("these layers are of names alone")

    def drop_name(self):
        return self

    def list_read_inputs(self, inputs):
        return [self._given.index(name) for name in self._read]

    def list_passed_inputs(self, outputs):
        return [self._given.index(n) if n in self._given else None for n in self._gives]


def u_shaped():
    """Two skips, one within the other: a is read by f, b by e, and the image by the last too."""
    rows = [
        ("i", "i", "ia"),
        ("ia", "a", "iab"),
        ("iab", "b", "iabc"),
        ("iabc", "c", "iabd"),
        ("iabd", "bd", "iae"),
        ("iae", "ae", "if"),
        ("if", "if", "g"),
    ]
    layers = (Reader(f"layer{at}", *row) for at, row in enumerate(rows))
    return Model("u", IMAGE, tuple(layers))


def routes(balance, straight=()):
    return find_routes(build_tensor_table(u_shaped()), layer_ranges(balance), straight)


def test_tensors_have_numbers_makers_and_readers():
    table = build_tensor_table(u_shaped())
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
    assert table.select_flow((0, 3)) == (IMAGE, Map(1, 8, 8))


def test_along_each_stage_sends_all_that_is_alive_to_the_next():
    found = routes((1,) * 7)
    alive = found.table.layer_inputs
    assert found.routes == tuple(Route(at, at + 1, alive[at + 1]) for at in range(6))
    assert found.skips == ()


def test_straight_a_tensor_goes_to_the_next_stage_that_reads_it():
    found = routes((2, 2, 1, 2), None)
    assert found.routes == (
        Route(0, 1, (2,)),
        Route(0, 3, (0, 1)),
        Route(1, 2, (2, 4)),
        Route(2, 3, (5,)),
    )
    assert [(one.source, one.target, one.stages_passed) for one in found.skips] == [(0, 3, 2)]
    assert [found.list_inputs(at) for at in range(4)] == [(0,), (2,), (2, 4), (0, 1, 5)]
    assert [found.list_outputs(at) for at in range(4)] == [(0, 1, 2), (2, 4), (5,), ()]
    assert [found.find_bypassing(at) for at in range(4)] == [set(), {0, 1}, {0, 1}, set()]


def test_some_stages_pass_along_what_others_are_spared():
    found = routes((1, 1, 1, 1, 1, 1, 1), {(1, 5)})
    assert Route(1, 5, (1,)) in found.routes
    assert all(0 in route.tensors for route in found.routes if not route.stages_passed)
    assert found.find_bypassing(2) == {1}


def test_those_beside_a_stage_come_first():
    found = routes((1,) * 7, None)
    assert [one.source for one in found.list_incoming(5)] == [4, 1]
    assert [one.target for one in found.list_outgoing(0)] == [1, 6]
    assert [one.target for one in found.list_outgoing(1)] == [2, 5]


@pytest.mark.parametrize("balance", [(7,), (3, 4), (2, 3, 2), (1, 2, 3, 1)])
@pytest.mark.parametrize("straight", [None, ()])
def test_every_stage_gets_what_it_reads_and_sends_what_it_gets_or_makes(balance, straight):
    found = routes(balance, straight)
    for stage, (first, last) in enumerate(found.stages):
        table = found.table
        got = set(found.list_inputs(stage))
        made = {at for at, layer in enumerate(table.makers) if at and first <= layer < last}
        read = {
            at for at, layers in enumerate(table.readers) if any(first <= x < last for x in layers)
        }
        assert read <= got | made
        assert set(found.list_outputs(stage)) <= got | made
        if straight is None and stage:
            assert got <= read


SIZES = {
    "resnet": {"depth": 20, "version": 1},
    "amoebanet": {"num_layers": 6, "num_filters": 16},
}


@pytest.mark.parametrize("name", SIZES)
def test_models_of_spbench_pass_nothing_over_a_stage(name):
    sizes = (
        {"depth": 20, "version": 1} if name == "resnet" else {"num_layers": 6, "num_filters": 16}
    )
    net = make_model(name, image_size=(32, 32), num_classes=3, **sizes)
    table = build_tensor_table(net)
    found = find_routes(table, [(at, at + 1) for at in range(len(net.layers))], None)
    assert found.skips == ()
    for stage in range(1, len(net.layers)):
        assert table.select_flow(found.list_inputs(stage)) == net.flows[stage]
