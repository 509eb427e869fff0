"""Layout of a model's ranks: replica x stage x tile, like in MPI4DL and GEMS.

A model is cut into stages. Each rank of a *spatial* stage holds one tile of every image. Each rank
of another stage, a *member*, holds whole images and a share of each micro-batch; ``local_DP`` is
the number of members. The ranks of a replica are numbered stage by stage, and replicas follow each
other.

In a mirrored layout (GEMS) each replica holds the model twice. Direction 1 runs over the same ranks
from the last to the first: of S stages, a rank of stage s is also a rank of stage S - 1 - s in the
other direction.

In a layout of several rounds (interleaved pipelines) the stages run over the same ranks several
times. With S stages per round, the ranks of stage s are also those of stage S + s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from spbench_core.layout.tiles import Grid

ONE_TILE = Grid(1, 1)


@dataclass(frozen=True, slots=True)
class Stage:
    """The ranks of one stage.

    Attributes:
        grid: The tiles of each image, one per rank; one tile is the whole image.
        members: The number of ranks that share the images of a micro-batch.
    """

    grid: Grid = ONE_TILE
    members: int = 1

    def __post_init__(self) -> None:
        if self.members < 1 or self.grid.size < 1:
            raise ValueError("a stage has at least one rank")
        if self.members > 1 and self.spatial:
            raise ValueError("a stage's ranks share either tiles or images, not both")

    @property
    def rank_count(self) -> int:
        """The number of ranks of the stage."""
        return self.grid.size * self.members

    @property
    def spatial(self) -> bool:
        """Whether its ranks hold tiles of images."""
        return self.grid.size > 1


@dataclass(frozen=True, slots=True)
class RankCoordinates:
    """The coordinates of a rank in one direction and one round of the model.

    Attributes:
        replica: The copy of the model; each has its own images.
        stage: The stage, counted over all rounds.
        tile: The tile of an image, row by row; 0 if the rank holds whole images.
        member: The share of a micro-batch's images; 0 if the rank holds tiles.
        direction: 0, or 1 in the mirrored pipeline.
    """

    replica: int
    stage: int
    tile: int
    member: int
    direction: int = 0


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """The layout of a model's ranks.

    Attributes:
        stages: The stages of all rounds, from the images to the loss.
        replicas: The number of copies of all stages, each with its own images (outer data
            parallelism).
        mirrored: Whether a second pipeline runs over the same ranks in the opposite direction.
        rounds: The number of rounds of stages over the ranks (interleaved pipelines); each rank has
            a stage in each round.
    """

    stages: tuple[Stage, ...]
    replicas: int = 1
    mirrored: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        if not self.stages or self.replicas < 1 or self.rounds < 1:
            raise ValueError("a model has at least one stage, one replica and one round")
        if self.rounds > 1:
            self._check_rounds()

    @property
    def stages_per_round(self) -> int:
        """The number of stages that are on different ranks."""
        return len(self.stages) // self.rounds

    @property
    def ranks_per_replica(self) -> int:
        """The number of ranks of one replica."""
        return sum(stage.rank_count for stage in self.stages[: self.stages_per_round])

    @property
    def rank_count(self) -> int:
        """The number of ranks of all replicas, which the job must have."""
        return self.replicas * self.ranks_per_replica

    @property
    def directions(self) -> tuple[int, ...]:
        """The pipelines that each rank takes part in."""
        return (0, 1) if self.mirrored else (0,)

    def find_round(self, stage: int) -> int:
        """Return the round of a stage."""
        return stage // self.stages_per_round

    def locate_rank(self, rank: int, direction: int = 0, round_index: int = 0) -> RankCoordinates:
        """Return the coordinates of a rank in a direction and a round.

        Raises:
            ValueError: There is no such rank, direction or round.
        """
        self._check_direction(direction)
        if not 0 <= round_index < self.rounds:
            raise ValueError(f"round {round_index} is none of the {self.rounds} of this layout")
        if not 0 <= rank < self.rank_count:
            raise ValueError(f"rank {rank} is none of the {self.rank_count} ranks of this layout")
        replica, rank_in_replica = divmod(rank, self.ranks_per_replica)
        # Direction 1 counts the ranks of a replica from the last to the first.
        offset = self.ranks_per_replica - 1 - rank_in_replica if direction else rank_in_replica
        first_stage = round_index * self.stages_per_round
        for index, stage in enumerate(
            self.stages[first_stage : first_stage + self.stages_per_round], first_stage
        ):
            if offset < stage.rank_count:
                tile, member = divmod(offset, stage.members)
                return RankCoordinates(replica, index, tile, member, direction)
            offset -= stage.rank_count
        raise AssertionError("a replica's ranks are those of its stages")

    def list_coordinates(self, rank: int) -> tuple[RankCoordinates, ...]:
        """Return the coordinates of a rank in each direction and round."""
        combinations = product(self.directions, range(self.rounds))
        return tuple(
            self.locate_rank(rank, direction, round_index)
            for direction, round_index in combinations
        )

    def list_stage_ranks(self, stage: int, replica: int = 0, direction: int = 0) -> tuple[int, ...]:
        """Return the ranks of a stage, in the order of its tiles or members.

        Raises:
            ValueError: There is no such direction.
        """
        self._check_direction(direction)
        earlier_stages = self.stages[: stage % self.stages_per_round]
        first_offset = sum(earlier_stage.rank_count for earlier_stage in earlier_stages)
        offsets = range(first_offset, first_offset + self.stages[stage].rank_count)
        first_rank = replica * self.ranks_per_replica
        last_offset = self.ranks_per_replica - 1
        return tuple(
            first_rank + (last_offset - offset if direction else offset) for offset in offsets
        )

    def list_peer_ranks(self, coordinates: RankCoordinates, peer_stage: int) -> tuple[int, ...]:
        """Return the ranks of another stage with which a rank exchanges images.

        If both stages have the same number of members, each member keeps its images. Otherwise each
        rank of a stage may hold pixels that any rank of the other stage needs. The result is empty
        if there is no such stage.
        """
        if not 0 <= peer_stage < len(self.stages):
            return ()
        ranks = self.list_stage_ranks(peer_stage, coordinates.replica, coordinates.direction)
        stage = self.stages[coordinates.stage]
        peer = self.stages[peer_stage]
        if stage.spatial or peer.spatial or stage.members != peer.members:
            return ranks
        return (ranks[coordinates.member],)

    def _check_direction(self, direction: int) -> None:
        if direction not in self.directions:
            raise ValueError(f"direction {direction} is none of {self.directions}")

    def _check_rounds(self) -> None:
        if self.mirrored:
            raise ValueError("a mirrored layout has one round")
        if len(self.stages) % self.rounds:
            raise ValueError(f"{len(self.stages)} stages are no {self.rounds} rounds of as many")
        if self.stages_per_round < 2:
            raise ValueError("a round has at least two stages: else a rank is its own neighbour")
        if self.stages != self.stages[: self.stages_per_round] * self.rounds:
            raise ValueError("every round has the same ranks: its stages are those of the first")


def build_layout(
    stages: int,
    grids: Sequence[Grid] = (),
    *,
    members: int | Sequence[int] = 1,
    replicas: int = 1,
    mirrored: bool = False,
    rounds: int = 1,
) -> ModelLayout:
    """Return the layout of stages: tiles in the first ones, members in the others.

    It needs ``replicas * (sum of tiles + sum of members)`` ranks, with the sums over one round.

    Args:
        stages: The number of stages.
        grids: The tiles of the first stages.
        members: The number of members of all other stages, or of each of them.
        replicas: The number of replicas.
        mirrored: Whether there is a second pipeline in the opposite direction.
        rounds: The number of rounds.

    Raises:
        ValueError: There are more grids than stages, the number of members is not that of the
            stages without tiles, a number is below 1, or the stages do not form such rounds.
    """
    if len(grids) > stages:
        raise ValueError(f"{len(grids)} stages in tiles are more than the {stages} of the model")
    unsplit_stages = stages - len(grids)
    members_by_stage = [members] * unsplit_stages if isinstance(members, int) else list(members)
    if len(members_by_stage) != unsplit_stages:
        raise ValueError(
            f"{len(members_by_stage)} numbers of members are not one for each of "
            f"{unsplit_stages} stages"
        )
    spatial = tuple(Stage(grid) for grid in grids)
    unsplit = tuple(Stage(members=count) for count in members_by_stage)
    return ModelLayout(spatial + unsplit, replicas, mirrored, rounds)
