"""What is said about a set of timings: medians, 95 % intervals, whether they were quiet."""

import math
import random
import statistics
from typing import Callable, Sequence

DRAWS = 2000
NOISY = 1.3  # p90/p10 of eager's own blocks above which a run says little

Rounds = Sequence[Sequence[float]]  # of each process, what its blocks gave


def _draw(rounds: Rounds, generator: random.Random) -> float:
    drawn = generator.choices(rounds, k=len(rounds))
    return statistics.median(value for values in drawn for value in generator.choices(values, k=len(values)))


def bootstrap(draw: Callable[[random.Random], float], draws: int = DRAWS) -> tuple[float, float]:
    """95 % interval of what `draw` makes of one resampling (percentile method, Efron 1979)."""
    generator = random.Random(1)
    found = sorted(draw(generator) for _ in range(draws))
    return found[int(draws * 0.025)], found[int(draws * 0.975)]


def interval(rounds: Rounds, draws: int = DRAWS) -> tuple[float, float]:
    """95 % interval of the median of all values by bootstrap of rounds, then of blocks in them."""
    return bootstrap(lambda generator: _draw(rounds, generator), draws)


def median(rounds: Rounds) -> float:
    return statistics.median(value for values in rounds for value in values)


def described(rounds: Rounds) -> dict[str, float]:
    low, high = interval(rounds)
    return {"median": median(rounds), "low": low, "high": high}


def ratios(over: Rounds, under: Rounds) -> list[list[float]]:
    """Block by block, what stood beside each other in time."""
    return [[a / b for a, b in zip(x, y, strict=True)] for x, y in zip(over, under, strict=True)]


def ratio(over: Rounds, under: Rounds) -> dict[str, float]:
    return described(ratios(over, under))


def quotient(over: Rounds, under: Rounds, draws: int = DRAWS) -> dict[str, float]:
    """median / median of two sets that weren't measured beside each other, drawn independently."""
    low, high = bootstrap(lambda generator: _draw(over, generator) / _draw(under, generator), draws)
    return {"median": median(over) / median(under), "low": low, "high": high}


def spread(values: Sequence[float]) -> float:
    """p90 / p10, both interpolated between neighbours; 1 of a single value."""
    ordered = sorted(values)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return quantile(0.9) / quantile(0.1)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan
