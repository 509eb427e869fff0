"""From the parameters of a model benchmark to its layout: stages, tiles, balance and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spbench_core.catalog.benchmark import IdleParamError, ParamError, Ranks
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.tiles import resolve_grid
from spbench_core.layout.stages import ModelLayout, build_layout
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_core.schedule.orders import INTERLEAVED
from spbench_core.whole_numbers import MAX_DIGITS, parse_whole

if TYPE_CHECKING:
    from spbench_core.models.layers import Model

TILED = ("sp", "gems_sp")
MIRRORED = ("gems", "gems_sp")
MEASURED = "measured"
ESTIMATED = "estimated"
_METHODS = ("vertical", "horizontal", "square")


def resolve_grids(params: Params) -> Params:
    """Fill in num_spatial_parts, slice_method and grid, one entry for each spatial stage.

    Raises:
        ParamError: The parameters contradict each other, or more stages are spatial than there are.
    """
    count = params["spatial_size"]
    if count > params["split_size"]:
        raise ParamError(
            "spatial_size",
            f"spatial_size {count} is more than the {params['split_size']} stages of split_size",
        )
    of = f"spatial_size is {count}"
    parts = _each(params, "num_spatial_parts", count, of, _read_parts)
    methods = _each(params, "slice_method", count, of, _read_method)
    given = _each(params, "grid", count, of, _read_grid)
    stages = zip(parts, methods, given, strict=True)
    grids = [resolve_grid(*stage) for stage in stages]
    if all(grid.size == 1 for grid in grids):
        raise ParamError("num_spatial_parts", "one tile is the whole image; take 2 or more, or lp")
    return params | {
        "num_spatial_parts": ",".join(str(grid.size) for grid in grids),
        "grid": ",".join(map(str, grids)),
    }


def resolve_members(params: Params) -> Params:
    """Read local_DP, and write it as one number where all stages without tiles have the same.

    Raises:
        ParamError: It is neither one number for all of them nor one for each, or there are none.
    """
    tiled = params.get("spatial_size") or 0
    count = params["split_size"] - tiled
    if count == 0:
        if params["local_DP"] != "1":
            raise IdleParamError("local_DP", "where every stage works on tiles")
        return params
    of = f"{count} of {params['split_size']} stages have no tiles"
    members = _each(params, "local_DP", count, of, _read_members)
    kept = members[:1] if len(set(members)) == 1 else members
    return params | {"local_DP": ",".join(map(str, kept))}


def _each(params: Params, name: str, count: int, of: str, read: Any) -> list[Any]:
    """Return a parameter's value for each of some stages; one value is that of all."""
    if params[name] is None:
        return [None] * count
    try:
        values = [read(word.strip()) for word in params[name].split(",")]
    except ValueError as error:
        raise ParamError(name, f"{name}: {error}") from None
    if len(values) not in (1, count):
        raise ParamError(
            name,
            f"{name} {params[name]} has {len(values)} entries, {of}: give one for all, or {count}",
        )
    return values * count if len(values) == 1 else values


def _read_parts(word: str) -> int:
    if not word.isdecimal() or (count := parse_whole(word)) < 1:
        raise ValueError(f"{word!r} is no number of tiles")
    return count


def _read_members(word: str) -> int:
    if not word.isdecimal() or (count := parse_whole(word)) < 1:
        raise ValueError(f"{word!r} is no number of ranks")
    return count


def _is_count(word: str) -> bool:
    return word.isdecimal() and len(word) <= MAX_DIGITS and int(word) > 0


def _read_method(word: str) -> str:
    if word not in _METHODS:
        raise ValueError(f"{word!r} is none of {', '.join(_METHODS)}")
    return word


def _read_grid(word: str) -> Grid:
    return Grid(*parse_pair(word))


def make_layout(params: Params) -> ModelLayout:
    """Return the table of ranks of complete parameters; one rank for the sequential model."""
    if params["scheme"] == "sequential":
        return build_layout(1)
    grids: list[Grid] = []
    if params["scheme"] in TILED:
        grids = [_read_grid(word) for word in params["grid"].split(",")]
    return build_layout(
        params["split_size"],
        grids,
        members=parse_members(params["local_DP"]),
        replicas=params["replicas"],
        mirrored=params["scheme"] in MIRRORED,
        rounds=params["rounds"] or 1,
    )


def parse_members(text: str) -> int | list[int]:
    """Return a complete local_DP: one number for all stages without tiles, or one for each."""
    members = [_read_members(word) for word in text.split(",")]
    return members[0] if len(members) == 1 else members


def resolve_balance(params: Params, model: Model) -> Params:
    """Fill in balance, and hold the tiles to the maps that they cut.

    It is by measured times where nothing else is asked for; the numbers by estimated cost must do
    then too, for ranks take them where those by times do not.

    Raises:
        ParamError: The balance is not one of this model, or a rank would hold no pixel.
    """
    from spbench_core.layout.balance import check_stages, layer_ranges, read_balance
    from spbench_core.models.parts import ModelError
    from spbench_core.models.stage_balance import balance_by_cost, check_tiles

    layout = make_layout(params)
    layers = len(model.layers)
    try:
        check_stages(len(layout.stages), layers)
    except ValueError as error:
        raise ParamError("split_size", f"split_size: {error}") from None
    asked = params["balance"]
    if asked == MEASURED:
        check_fused(params, model)
        return params
    try:
        if asked in (None, ESTIMATED):
            balance = balance_by_cost(model, layout)
        else:
            balance = read_balance(asked, len(layout.stages), layers)
    except ValueError as error:
        raise ParamError("balance", f"balance: {error}") from None
    for index, (first, _) in enumerate(layer_ranges(balance)):
        try:
            check_tiles(index, layout.stages[index].grid, model, first)
        except ModelError as error:
            raise ParamError(error.param, str(error)) from None
    numbers = params | {"balance": ",".join(map(str, balance))}
    check_fused(numbers, model)
    return params | {"balance": MEASURED} if asked is None and len(balance) > 1 else numbers


def resolve_imports_balance(params: Params) -> Params:
    """Fill in the balance of a network whose layers are known only once it is loaded.

    Raises:
        ParamError: The numbers are not one for each stage.
    """
    stages = len(make_layout(params).stages)
    asked = params["balance"]
    if asked in (None, MEASURED, ESTIMATED):
        return params | {"balance": MEASURED if asked is None else asked}
    words = asked.split(",")
    if not all(_is_count(word.strip()) for word in words):
        raise ParamError("balance", f"balance: {asked!r} is no list of numbers of layers")
    if len(words) != stages:
        raise ParamError(
            "balance", f"balance: {asked} has {len(words)} numbers, one for each of {stages} stages"
        )
    return params


def check_fused(params: Params, model: Model) -> None:
    """Refuse more fused_layers than a spatial stage of complete parameters has.

    Raises:
        ParamError: fused_layers is more than the largest spatial stage has.
    """
    from spbench_core.layout.balance import layer_ranges, read_balance
    from spbench_core.models.halo_groups import check_fused_layers
    from spbench_core.models.parts import ModelError

    if params["fused_layers"] is None:
        return
    stages = make_layout(params).stages
    layers = len(model.layers)
    if params["balance"] == MEASURED:
        # Not known yet; the largest stage leaves one layer to each of the others.
        ranges = [(0, layers - len(stages) + 1)]
    else:
        balance = read_balance(params["balance"], len(stages), layers)
        pairs = zip(layer_ranges(balance), stages, strict=True)
        ranges = [one for one, stage in pairs if stage.spatial]
    try:
        check_fused_layers(model, ranges, params["fused_layers"])
    except ModelError as error:
        raise ParamError(error.param, str(error)) from None


def count_ranks(params: Params) -> Ranks:
    """Return replicas * (sum of tiles + sum of local_DP over the stages without tiles).

    Of several rounds the stages of the first one count: the others are on the same ranks.
    """
    return Ranks(exact=make_layout(params).ranks)


def describe_rank(params: Params, rank: int) -> dict[str, Any]:
    """Return the replica, stage and tile of a rank, and in mirrored layouts those of direction 1.

    Of a rank with a stage in each of several rounds, ``stage`` is the first of its ``stages``.
    """
    layout = make_layout(params)
    shown: dict[str, Any] = {}
    several = ",".join(str(place.stage) for place in layout.list_coordinates(rank))
    for direction in layout.directions:
        place = layout.locate_rank(rank, direction)
        stage = layout.stages[place.stage]
        row, col = divmod(place.tile, stage.grid.cols)
        described: dict[str, Any] = {"replica": place.replica, "stage": place.stage}
        described |= {"stages": several} if layout.rounds > 1 else {}
        described |= {"tile": f"{row},{col}"} if stage.spatial else {}
        described |= {"member": place.member} if stage.members > 1 else {}
        if place.direction:
            described.pop("replica")
            described = {f"mirrored_{name}": value for name, value in described.items()}
        shown |= described
    return shown


_ROUNDS = 2
_STAGES = 2
"""Of a round, at least: with one, a rank would be its own neighbour."""


def resolve_rounds(params: Params) -> Params:
    """Fill in rounds, and the stages of two ranks where split_size is left out.

    Raises:
        ParamError: The schedule is another, or not for this scheme; or stages or micro-batches do
            not go up in rounds.
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
        stages = params["split_size"] // rounds
        words = f"the {stages} stages of a round, as schedule interleaved has it"
        _check_multiple("parts", params["parts"], stages, words)
    return params


def check_round_members(params: Params) -> None:
    """Refuse a complete local_DP that gives the stages of one round other ranks than another's.

    Raises:
        ParamError: A round would have other ranks than another.
    """
    rounds = params["rounds"] or 1
    members = parse_members(params["local_DP"])
    if isinstance(members, int):
        return
    wanted = members[: len(members) // rounds] * rounds
    if members != wanted:
        raise ParamError(
            "local_DP",
            f"local_DP {params['local_DP']} must be the same in each of {rounds} rounds, "
            f"as in {','.join(map(str, wanted))}",
        )


def _check_stages(stages: int, rounds: int) -> None:
    least = _STAGES * rounds
    if stages < least:
        raise ParamError(
            "split_size",
            f"split_size {stages} is too small for {rounds} rounds: take {least} or more",
        )
    _check_multiple("split_size", stages, rounds, f"rounds {rounds}")


def _check_multiple(name: str, number: int, of: int, words: str) -> None:
    if number % of:
        below = number // of * of
        near = f"{below} or {below + of}" if below else str(of)
        raise ParamError(name, f"{name} {number} is no multiple of {words}: take {near}")
