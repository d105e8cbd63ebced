"""How evenly the ranks of a run share the time of each region."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .results import MPIRegion

__all__ = ["RankBalance", "balance_of"]


class RankBalance(NamedTuple):
    """The time that a region took on each of its ranks, against the others. Times in s; ranks without a call do not count."""

    name: str
    """The region."""
    totals: dict[int, float]
    """What its calls took on each rank, by rank; at least one."""
    num_calls: int
    """Calls on all ranks."""

    @property
    def mean(self) -> float:
        """The mean of the ranks' totals."""
        return sum(self.totals.values()) / len(self.totals)

    @property
    def max_rank(self) -> int:
        """The rank with the largest total, the lowest of those that have it: the others wait for it."""
        return max(self.totals, key=lambda rank: (self.totals[rank], -rank))

    @property
    def min_rank(self) -> int:
        """The rank with the smallest total, the lowest of those that have it: it waits longest for the others."""
        return min(self.totals, key=lambda rank: (self.totals[rank], rank))

    @property
    def maximum(self) -> float:
        """The largest total."""
        return self.totals[self.max_rank]

    @property
    def minimum(self) -> float:
        """The smallest total."""
        return self.totals[self.min_rank]

    @property
    def imbalance_pct(self) -> float:
        """By how many percent the largest total exceeds the mean: 100 (maximum / mean - 1). 0.0 for one rank."""
        return 100 * (self.maximum / self.mean - 1) if self.mean > 0 else 0.0

    @property
    def lost_time(self) -> float:
        """The largest total less the mean: what the region would take less if its time were shared evenly."""
        return self.maximum - self.mean

    @property
    def waiting_times(self) -> dict[int, float]:
        """How long each rank waits for the slowest, if the ranks meet after the region."""
        return {rank: self.maximum - total for rank, total in self.totals.items()}


def balance_of(regions: Iterable[MPIRegion], ranks: Iterable[int] | None = None) -> list[RankBalance]:
    """The balance of each region that has a call, the one that loses most time first."""
    wanted = None if ranks is None else set(ranks)
    found = []
    for region in regions:
        chosen = {rank: region[rank] for rank in region.ranks if wanted is None or rank in wanted}
        totals = {rank: float(one.total_duration) for rank, one in chosen.items() if one.num_calls}
        if totals:
            found.append(RankBalance(region.name, totals, sum(int(one.num_calls) for one in chosen.values())))
    return sorted(found, key=lambda balance: -balance.lost_time)
