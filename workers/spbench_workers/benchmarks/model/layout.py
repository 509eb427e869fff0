"""Layout of a model from its parameters: stages, tiles, balance and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spbench_core.catalog.benchmark import IdleParamError, ParamError, Ranks
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.tiles import resolve_grid
from spbench_core.layout.stages import ModelLayout, build_layout
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_core.number_text import MAX_DIGITS, parse_whole
from spbench_core.schedule.orders import INTERLEAVED

if TYPE_CHECKING:
    from spbench_core.models.layers import Model

TILED = ("sp", "gems_sp")
MIRRORED = ("gems", "gems_sp")
MEASURED = "measured"
ESTIMATED = "estimated"
_METHODS = ("vertical", "horizontal", "square")


def resolve_grids(params: Params) -> Params:
    """Fill in num_spatial_parts, slice_method and grid for each spatial stage.

    Raises:
        ParamError: The parameters contradict each other, or spatial_size exceeds split_size.
    """
    tiled_stages = params["spatial_size"]
    if tiled_stages > params["split_size"]:
        raise ParamError(
            "spatial_size",
            f"spatial_size {tiled_stages} is more than the {params['split_size']} stages of "
            "split_size",
        )
    condition = f"spatial_size is {tiled_stages}"
    tile_counts = _parse_per_stage(
        params, "num_spatial_parts", tiled_stages, condition, _read_parts
    )
    methods = _parse_per_stage(params, "slice_method", tiled_stages, condition, _read_method)
    explicit_grids = _parse_per_stage(params, "grid", tiled_stages, condition, _read_grid)
    settings_by_stage = zip(tile_counts, methods, explicit_grids, strict=True)
    grids = [resolve_grid(*settings) for settings in settings_by_stage]
    if all(grid.size == 1 for grid in grids):
        raise ParamError("num_spatial_parts", "one tile is the whole image; take 2 or more, or lp")
    return params | {
        "num_spatial_parts": ",".join(str(grid.size) for grid in grids),
        "grid": ",".join(map(str, grids)),
    }


def resolve_members(params: Params) -> Params:
    """Normalise local_DP: one number if all stages without tiles have the same.

    Raises:
        ParamError: It is neither one number nor one per stage, or every stage has tiles.
    """
    tiled_stages = params.get("spatial_size") or 0
    untiled_stages = params["split_size"] - tiled_stages
    if untiled_stages == 0:
        if params["local_DP"] != "1":
            raise IdleParamError("local_DP", "where every stage works on tiles")
        return params
    condition = f"{untiled_stages} of {params['split_size']} stages have no tiles"
    members_by_stage = _parse_per_stage(
        params, "local_DP", untiled_stages, condition, _read_members
    )
    unique = members_by_stage[:1] if len(set(members_by_stage)) == 1 else members_by_stage
    return params | {"local_DP": ",".join(map(str, unique))}


def _parse_per_stage(
    params: Params, name: str, stage_count: int, condition: str, read: Any
) -> list[Any]:
    """Return a parameter's value for each stage; a single value is for all stages."""
    if params[name] is None:
        return [None] * stage_count
    try:
        values = [read(entry.strip()) for entry in params[name].split(",")]
    except ValueError as error:
        raise ParamError(name, f"{name}: {error}") from None
    if len(values) not in (1, stage_count):
        raise ParamError(
            name,
            f"{name} {params[name]} has {len(values)} entries, {condition}: "
            f"give one for all, or {stage_count}",
        )
    return values * stage_count if len(values) == 1 else values


def _read_parts(text: str) -> int:
    if not text.isdecimal() or (count := parse_whole(text)) < 1:
        raise ValueError(f"{text!r} is no number of tiles")
    return count


def _read_members(text: str) -> int:
    if not text.isdecimal() or (count := parse_whole(text)) < 1:
        raise ValueError(f"{text!r} is no number of ranks")
    return count


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS and int(text) > 0


def _read_method(text: str) -> str:
    if text not in _METHODS:
        raise ValueError(f"{text!r} is none of {', '.join(_METHODS)}")
    return text


def _read_grid(text: str) -> Grid:
    return Grid(*parse_pair(text))


def make_layout(params: Params) -> ModelLayout:
    """Return the layout of complete parameters; one rank for the sequential scheme."""
    if params["scheme"] == "sequential":
        return build_layout(1)
    grids: list[Grid] = []
    if params["scheme"] in TILED:
        grids = [_read_grid(grid) for grid in params["grid"].split(",")]
    return build_layout(
        params["split_size"],
        grids,
        members=parse_members(params["local_DP"]),
        replicas=params["replicas"],
        mirrored=params["scheme"] in MIRRORED,
        rounds=params["rounds"] or 1,
    )


def parse_members(text: str) -> int | list[int]:
    """Parse a complete local_DP: one number for all stages without tiles, or a list."""
    members = [_read_members(number) for number in text.split(",")]
    return members[0] if len(members) == 1 else members


def resolve_balance(params: Params, model: Model) -> Params:
    """Fill in balance, and check tiles against the size of the maps.

    By default the balance is measured. The balance by estimated cost must be valid then too,
    because ranks fall back to it if the measured one is invalid.

    Raises:
        ParamError: The balance does not fit the model, or a rank would have no pixel.
    """
    from spbench_core.layout.balance import check_stages, list_layer_ranges, read_balance
    from spbench_core.models.parts import ModelError
    from spbench_core.models.stages import balance_by_cost, check_tiles

    layout = make_layout(params)
    layer_count = len(model.layers)
    try:
        check_stages(len(layout.stages), layer_count)
    except ValueError as error:
        raise ParamError("split_size", f"split_size: {error}") from None
    requested = params["balance"]
    if requested == MEASURED:
        check_fused(params, model)
        return params
    try:
        if requested in (None, ESTIMATED):
            balance = balance_by_cost(model, layout)
        else:
            balance = read_balance(requested, len(layout.stages), layer_count)
    except ValueError as error:
        raise ParamError("balance", f"balance: {error}") from None
    for index, (first, _) in enumerate(list_layer_ranges(balance)):
        try:
            check_tiles(index, layout.stages[index].grid, model, first)
        except ModelError as error:
            raise ParamError(error.param, str(error)) from None
    resolved = params | {"balance": ",".join(map(str, balance))}
    check_fused(resolved, model)
    return params | {"balance": MEASURED} if requested is None and len(balance) > 1 else resolved


def resolve_imported_balance(params: Params) -> Params:
    """Fill in the balance of a user's network, with layers that are not yet known.

    Raises:
        ParamError: The numbers are invalid, or not one per stage.
    """
    stage_count = len(make_layout(params).stages)
    requested = params["balance"]
    if requested in (None, MEASURED, ESTIMATED):
        return params | {"balance": MEASURED if requested is None else requested}
    layer_counts = requested.split(",")
    if not all(_is_count(number.strip()) for number in layer_counts):
        raise ParamError("balance", f"balance: {requested!r} is no list of numbers of layers")
    if len(layer_counts) != stage_count:
        raise ParamError(
            "balance",
            f"balance: {requested} has {len(layer_counts)} numbers, "
            f"one for each of {stage_count} stages",
        )
    return params


def check_fused(params: Params, model: Model) -> None:
    """Check that no more layers are fused than a spatial stage has.

    Raises:
        ParamError: fused_layers is more than the largest spatial stage has.
    """
    from spbench_core.layout.balance import list_layer_ranges, read_balance
    from spbench_core.models.parts import ModelError
    from spbench_core.models.stages import check_fused_layers

    if params["fused_layers"] is None:
        return
    stages = make_layout(params).stages
    layer_count = len(model.layers)
    if params["balance"] == MEASURED:
        # The balance is unknown; the largest possible stage leaves one layer to each other stage.
        layer_ranges_of_tiles = [(0, layer_count - len(stages) + 1)]
    else:
        balance = read_balance(params["balance"], len(stages), layer_count)
        pairs = zip(list_layer_ranges(balance), stages, strict=True)
        layer_ranges_of_tiles = [bounds for bounds, stage in pairs if stage.spatial]
    try:
        check_fused_layers(model, layer_ranges_of_tiles, params["fused_layers"])
    except ModelError as error:
        raise ParamError(error.param, str(error)) from None


def count_ranks(params: Params) -> Ranks:
    """Return replicas * (tiles of all stages + local_DP of stages without tiles).

    With several rounds, only the stages of the first one count, because the others are on the same
    ranks.
    """
    names = ["scheme"]
    if params["scheme"] != "sequential":
        names.append("split_size")
        names += ["num_spatial_parts"] if params["scheme"] in TILED else []
        names += ["local_DP"] if params["local_DP"] != "1" else []
        names += ["replicas"] if params["replicas"] > 1 else []
        names += ["rounds"] if (params["rounds"] or 1) > 1 else []
    return Ranks(exact=make_layout(params).rank_count, params=tuple(names))


def describe_rank(params: Params, rank: int) -> dict[str, Any]:
    """Return the replica, stage and tile of a rank, and those of a mirrored direction.

    If a rank has a stage in each of several rounds, ``stage`` is the first of its ``stages``.
    """
    layout = make_layout(params)
    labels: dict[str, Any] = {}
    all_stages = ",".join(str(coordinates.stage) for coordinates in layout.list_coordinates(rank))
    for direction in layout.directions:
        coordinates = layout.locate_rank(rank, direction)
        stage = layout.stages[coordinates.stage]
        row, col = divmod(coordinates.tile, stage.grid.cols)
        fields: dict[str, Any] = {"replica": coordinates.replica, "stage": coordinates.stage}
        fields |= {"stages": all_stages} if layout.rounds > 1 else {}
        fields |= {"tile": f"{row},{col}"} if stage.spatial else {}
        fields |= {"member": coordinates.member} if stage.members > 1 else {}
        if coordinates.direction:
            fields.pop("replica")
            fields = {f"mirrored_{name}": value for name, value in fields.items()}
        labels |= fields
    return labels


_ROUNDS = 2
_STAGES = 2
"""Least stages of a round; with one, a rank would be its own neighbour."""


def resolve_rounds(params: Params) -> Params:
    """Fill in rounds, and by default the split_size for two ranks.

    Raises:
        ParamError: rounds needs the interleaved schedule, which needs scheme lp; or the numbers of
            stages or micro-batches are not multiples.
    """
    if params["schedule"] != INTERLEAVED:
        if params["rounds"] is not None:
            raise IdleParamError("rounds", "without schedule interleaved")
        return params
    if params["scheme"] != "lp":
        raise ParamError(
            "schedule", f"schedule interleaved is for scheme lp, not for {params['scheme']}"
        )
    rounds = params["rounds"] or _ROUNDS
    params = params | {"rounds": rounds, "split_size": params["split_size"] or _STAGES * rounds}
    _check_stages(params["split_size"], rounds)
    if not params["enable_evaluation"]:
        stages_per_round = params["split_size"] // rounds
        description = f"the {stages_per_round} stages of a round, as schedule interleaved has it"
        _check_multiple("parts", params["parts"], stages_per_round, description)
    return params


def check_round_members(params: Params) -> None:
    """Check that a complete local_DP has the same ranks in each round.

    Raises:
        ParamError: Two rounds would have different ranks.
    """
    rounds = params["rounds"] or 1
    members = parse_members(params["local_DP"])
    if isinstance(members, int):
        return
    expected = members[: len(members) // rounds] * rounds
    if members != expected:
        raise ParamError(
            "local_DP",
            f"local_DP {params['local_DP']} must be the same in each of {rounds} rounds, "
            f"as in {','.join(map(str, expected))}",
        )


def _check_stages(stage_count: int, rounds: int) -> None:
    minimum = _STAGES * rounds
    if stage_count < minimum:
        raise ParamError(
            "split_size",
            f"split_size {stage_count} is too small for {rounds} rounds: take {minimum} or more",
        )
    _check_multiple("split_size", stage_count, rounds, f"rounds {rounds}")


def _check_multiple(name: str, number: int, divisor: int, description: str) -> None:
    if number % divisor:
        lower_multiple = number // divisor * divisor
        alternatives = (
            f"{lower_multiple} or {lower_multiple + divisor}" if lower_multiple else str(divisor)
        )
        raise ParamError(
            name, f"{name} {number} is no multiple of {description}: take {alternatives}"
        )
