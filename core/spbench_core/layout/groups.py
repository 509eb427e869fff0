"""Groups of ranks: the ranks that a rank shares images or weights with."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.stages import ModelLayout, RankCoordinates

RankTuple = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """The ranks around one rank, in one direction and one round of the model.

    Every rank of a group has the same tuple for it, in the same order, so that a communicator can
    be created from it. Only `previous` and `next` differ between the ranks.

    Attributes:
        coordinates: The rank's coordinates.
        tiles: The ranks with the tiles of its images, itself included, in the order of the tiles;
            only itself if it holds whole images.
        members: The ranks that share the images of its micro-batches, itself included; only itself
            if it holds tiles.
        replicas: The ranks of the same stage, tile and member in all replicas.
        holders: All ranks with weights of this stage, over tiles, members, replicas and both
            directions, ascending. Their gradients belong to one update. A rank that holds the stage
            in both directions is in it once.
        mirror: In a mirrored layout, the two ranks that exchange the weights and gradients of these
            coordinates: first that of direction 0, then that of direction 1. A single rank if it is
            its own mirror; empty in other layouts.
        previous: The ranks that send its inputs; empty in the first stage.
        next: The ranks that receive its outputs; empty in the last stage.
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
    coordinates = layout.locate_rank(rank, direction, round)
    stage = coordinates.stage
    ranks = layout.list_stage_ranks(stage, coordinates.replica, direction)
    spatial = layout.stages[stage].spatial
    position = ranks.index(rank)
    return Groups(
        coordinates=coordinates,
        tiles=ranks if spatial else (rank,),
        members=(rank,) if spatial else ranks,
        replicas=tuple(
            layout.list_stage_ranks(stage, replica, direction)[position]
            for replica in range(layout.replicas)
        ),
        holders=_list_holders(layout, stage),
        mirror=_find_mirror(layout, coordinates, position),
        previous=list_peer_ranks(layout, coordinates, stage - 1),
        next=list_peer_ranks(layout, coordinates, stage + 1),
    )


def _list_holders(layout: ModelLayout, stage: int) -> RankTuple:
    ranks = {
        rank
        for replica in range(layout.replicas)
        for direction in layout.directions
        for rank in layout.list_stage_ranks(stage, replica, direction)
    }
    return tuple(sorted(ranks))


def _find_mirror(layout: ModelLayout, coordinates: RankCoordinates, position: int) -> RankTuple:
    if not layout.mirrored:
        return ()
    mirror_ranks = (
        layout.list_stage_ranks(coordinates.stage, coordinates.replica, direction)[position]
        for direction in (0, 1)
    )
    return tuple(dict.fromkeys(mirror_ranks))


def list_peer_ranks(
    layout: ModelLayout, coordinates: RankCoordinates, peer_stage: int
) -> RankTuple:
    """Return the ranks of another stage with which a rank exchanges images.

    If both stages have the same number of members, each member keeps its images. Otherwise each
    rank of a stage may hold pixels that any rank of the other stage needs. The result is empty if
    there is no such stage.
    """
    if not 0 <= peer_stage < len(layout.stages):
        return ()
    ranks = layout.list_stage_ranks(peer_stage, coordinates.replica, coordinates.direction)
    stage = layout.stages[coordinates.stage]
    peer = layout.stages[peer_stage]
    if stage.spatial or peer.spatial or stage.members != peer.members:
        return ranks
    return (ranks[coordinates.member],)
