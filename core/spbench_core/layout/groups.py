"""Groups of ranks: the ranks that a rank shares images or weights with, by its place."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.stages import ModelLayout, RankCoordinates

RankTuple = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """The ranks around one rank, in one direction and one round of the model.

    Every rank of a group has the same tuple for it, in the same order, so that a communicator can
    be made of it; `previous` and `next` alone are a rank's own.

    Attributes:
        place: The rank's place.
        tiles: The ranks that hold the other tiles of its images, itself among them, tile by tile;
            itself alone where it holds whole images.
        members: The ranks that share its micro-batches' images, itself among them; itself alone
            where it holds a tile of each.
        replicas: The ranks of the same stage, tile and member, over the replicas.
        holders: All ranks that hold weights of this stage, over tiles, members, replicas and both
            directions, ascending: their gradients belong to one update. A rank that holds the
            stage in both directions is in it once.
        mirror: In a mirrored layout, the two ranks that exchange the weights and gradients of this
            place: that of direction 0, then that of direction 1. One rank where it is its own
            mirror; none in other layouts.
        previous: The ranks whose outputs are this one's input; none in the first stage.
        next: The ranks whose input is this one's output; none in the last stage.
    """

    coordinates: RankCoordinates
    tiles: RankTuple
    members: RankTuple
    replicas: RankTuple
    holders: RankTuple
    mirror: RankTuple
    previous: RankTuple
    next: RankTuple


def find_groups(layout: ModelLayout, rank: int, direction: int = 0, round: int = 0) -> Groups:
    """Return the groups of a rank.

    Raises:
        ValueError: The layout has no such rank, direction or round.
    """
    place = layout.locate_rank(rank, direction, round)
    ranks = layout.list_stage_ranks(place.stage, place.replica, direction)
    spatial = layout.stages[place.stage].spatial
    index = ranks.index(rank)
    return Groups(
        coordinates=place,
        tiles=ranks if spatial else (rank,),
        members=(rank,) if spatial else ranks,
        replicas=tuple(
            layout.list_stage_ranks(place.stage, replica, direction)[index]
            for replica in range(layout.replicas)
        ),
        holders=_holders(layout, place.stage),
        mirror=_mirror(layout, place, index),
        previous=list_peer_ranks(layout, place, place.stage - 1),
        next=list_peer_ranks(layout, place, place.stage + 1),
    )


def _holders(layout: ModelLayout, stage: int) -> RankTuple:
    ranks = {
        rank
        for replica in range(layout.replicas)
        for direction in layout.directions
        for rank in layout.list_stage_ranks(stage, replica, direction)
    }
    return tuple(sorted(ranks))


def _mirror(layout: ModelLayout, place: RankCoordinates, index: int) -> RankTuple:
    if not layout.mirrored:
        return ()
    pair = (
        layout.list_stage_ranks(place.stage, place.replica, direction)[index]
        for direction in (0, 1)
    )
    return tuple(dict.fromkeys(pair))


def list_peer_ranks(layout: ModelLayout, place: RankCoordinates, other: int) -> RankTuple:
    """Return the ranks of another stage that a place exchanges images with; none if there is none.

    Between two stages of equally many members each keeps its share of the images; between others
    each rank of the one stage may hold pixels that any rank of the other needs.
    """
    if not 0 <= other < len(layout.stages):
        return ()
    ranks = layout.list_stage_ranks(other, place.replica, place.direction)
    here = layout.stages[place.stage]
    there = layout.stages[other]
    if here.spatial or there.spatial or here.members != there.members:
        return ranks
    return (ranks[place.member],)
