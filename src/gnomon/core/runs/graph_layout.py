"""The places of the steps of a graph in a drawing: in layers, with few crossings, every edge leading down.

The layer of a step is the length of the longest path to it. An edge over several layers gets a place in each of them,
so that it does not run through steps. Sweeps down and up order each layer by the mean place of its neighbours, which
lessens the crossings. The same graph always gets the same drawing.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

#: A graph with more steps or edges is shown as a list.
MOST_STEPS, MOST_EDGES = 200, 1_000
#: With more places of edges than these, long edges are drawn straight.
_MOST_BENDS = 2_000
_SWEEPS, _SHIFTS = 6, 4
#: A place in a layer: a step, or the bend of an edge, with its layer.
_Place = tuple[str, str, int]


class DrawingSizes(Struct, frozen=True, kw_only=True):
    """The sizes of a drawing, in its units."""

    width: int = 168
    height: int = 40
    #: Between two steps of a layer, between a step and the bend of an edge, and between two layers.
    gap: int = 24
    bend: int = 16
    layer_gap: int = 44
    margin: int = 8


class StepBox(Struct, frozen=True):
    """The box of a step: its layer, and its upper left corner."""

    step: str
    layer: int
    x: int
    y: int


class EdgeLine(Struct, frozen=True):
    """An edge: the points from the lower side of a step to the upper side of one that depends on it."""

    source: str
    target: str
    points: tuple[tuple[int, int], ...]


class GraphDrawing(Struct, frozen=True):
    """The boxes and lines of a graph, and the size of all of it."""

    width: int
    height: int
    boxes: tuple[StepBox, ...]
    edges: tuple[EdgeLine, ...]


def draw_graph(steps: Mapping[str, Sequence[str]], sizes: DrawingSizes | None = None) -> GraphDrawing | None:
    """The drawing of steps, each with those that it depends on; None if there are too many, or they form a circle.

    Dependencies on steps that are not among them are left out.
    """
    sizes = sizes or DrawingSizes()
    if not steps or len(steps) > MOST_STEPS:
        return None
    known = {step: tuple(dict.fromkeys(one for one in before if one in steps)) for step, before in steps.items()}
    layer_of = _layers(known) if sum(map(len, known.values())) <= MOST_EDGES else None
    if layer_of is None:
        return None
    chains = _chains(known, layer_of)
    order = _ordered(known, layer_of, chains)
    centers = _centers(order, chains, sizes)
    return _drawing(layer_of, chains, centers, sizes)


def _layers(steps: Mapping[str, Sequence[str]]) -> dict[str, int] | None:
    """The length of the longest path to each step; None if they form a circle."""
    followers: dict[str, list[str]] = {step: [] for step in steps}
    open_ends = {step: len(before) for step, before in steps.items()}
    for step, before in steps.items():
        for one in before:
            followers[one].append(step)
    ready = [step for step, count in open_ends.items() if not count]
    found = dict.fromkeys(ready, 0)
    for step in ready:
        for one in followers[step]:
            found[one] = max(found.get(one, 0), found[step] + 1)
            open_ends[one] -= 1
            if not open_ends[one]:
                ready.append(one)
    return found if len(ready) == len(steps) else None


def _chains(steps: Mapping[str, Sequence[str]], layer_of: Mapping[str, int]) -> list[tuple[_Place, ...]]:
    """The places of each edge, one in each layer from its beginning to its end."""
    edges = [(one, step) for step, before in steps.items() for one in before]
    bends = sum(layer_of[target] - layer_of[source] - 1 for source, target in edges)
    found = []
    for source, target in edges:
        between = range(layer_of[source] + 1, layer_of[target]) if bends <= _MOST_BENDS else ()
        bent = ((source, target, layer) for layer in between)
        found.append((_step(source, layer_of), *bent, _step(target, layer_of)))
    return found


def _step(step: str, layer_of: Mapping[str, int]) -> _Place:
    return step, "", layer_of[step]


def _ordered(
    steps: Mapping[str, Sequence[str]], layer_of: Mapping[str, int], chains: Sequence[Sequence[_Place]]
) -> list[list[_Place]]:
    """The places of each layer from left to right: the order with the fewest crossings of some sweeps."""
    layers: list[list[_Place]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for step in steps:
        layers[layer_of[step]].append(_step(step, layer_of))
    for chain in chains:
        for place in chain[1:-1]:
            layers[place[2]].append(place)
    links = [link for chain in chains for link in pairwise(chain)]
    above, below = _neighbours(links), _neighbours([(lower, upper) for upper, lower in links])
    best, fewest = [list(layer) for layer in layers], _crossings(layers, above)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        _sort_layers(layers if down else layers[::-1], above if down else below)
        crossings = _crossings(layers, above)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _neighbours(links: Sequence[tuple[_Place, _Place]]) -> dict[_Place, list[_Place]]:
    """The places in earlier layers of each place."""
    found: dict[_Place, list[_Place]] = {}
    for upper, lower in links:
        found.setdefault(lower, []).append(upper)
    return found


def _sort_layers(layers: Sequence[list[_Place]], before: Mapping[_Place, Sequence[_Place]]) -> None:
    """Sort each layer by the mean place of the neighbours in those that come before it; others stay where they are."""
    position: dict[_Place, float] = {}
    for layer in layers:
        here = {place: number for number, place in enumerate(layer)}
        keys = {
            place: _mean([position[one] for one in before.get(place, ()) if one in position], otherwise=here[place])
            for place in layer
        }
        layer.sort(key=keys.__getitem__)
        position |= {place: float(number) for number, place in enumerate(layer)}


def _crossings(layers: Sequence[Sequence[_Place]], above: Mapping[_Place, Sequence[_Place]]) -> int:
    """How many pairs of links cross. Those over several layers without bends count with the layer where they end."""
    position = {place: number for layer in layers for number, place in enumerate(layer)}
    count = 0
    for layer in layers:
        seen: list[int] = []
        for place in layer:
            ends = [position[one] for one in above.get(place, ())]
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            seen += ends
            seen.sort()
    return count


def _centers(
    order: Sequence[Sequence[_Place]], chains: Sequence[Sequence[_Place]], sizes: DrawingSizes
) -> dict[_Place, float]:
    """The middle of each place: in its layer, apart from its neighbours, and near those that it is linked with."""
    links = [link for chain in chains for link in pairwise(chain)]
    above, below = _neighbours(links), _neighbours([(lower, upper) for upper, lower in links])
    found: dict[_Place, float] = {}
    for layer in order:
        found |= _apart(layer, dict.fromkeys(layer, 0.0), sizes)
    for shift in range(_SHIFTS):
        down = shift % 2 == 0
        for layer in order if down else order[::-1]:
            beside = above if down else below
            wanted = {
                place: _mean([found[one] for one in beside.get(place, ())], otherwise=found[place]) for place in layer
            }
            found |= _apart(layer, wanted, sizes)
    return found


def _mean(values: Sequence[float], *, otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _apart(layer: Sequence[_Place], wanted: Mapping[_Place, float], sizes: DrawingSizes) -> dict[_Place, float]:
    """The places near where they are wanted, in their order and apart: the mean of pushing to either side."""
    right = _pushed(layer, wanted, sizes)
    turned = {place: -value for place, value in wanted.items()}
    left = {place: -value for place, value in _pushed(layer[::-1], turned, sizes).items()}
    return {place: (right[place] + left[place]) / 2 for place in layer}


def _pushed(layer: Sequence[_Place], wanted: Mapping[_Place, float], sizes: DrawingSizes) -> dict[_Place, float]:
    """The places where they are wanted, or as much to the right as those before them need."""
    found: dict[_Place, float] = {}
    for number, place in enumerate(layer):
        at = wanted[place]
        if number:
            before = layer[number - 1]
            at = max(at, found[before] + (_width(before, sizes) + _width(place, sizes)) / 2 + sizes.gap)
        found[place] = at
    return found


def _width(place: _Place, sizes: DrawingSizes) -> int:
    return sizes.bend if place[1] else sizes.width


def _drawing(
    layer_of: Mapping[str, int],
    chains: Sequence[Sequence[_Place]],
    centers: Mapping[_Place, float],
    sizes: DrawingSizes,
) -> GraphDrawing:
    left = min(center - _width(place, sizes) / 2 for place, center in centers.items()) - sizes.margin
    right = max(center + _width(place, sizes) / 2 for place, center in centers.items()) + sizes.margin

    def x_of(place: _Place) -> int:
        return round(centers[place] - left)

    def y_of(place: _Place) -> int:
        return sizes.margin + place[2] * (sizes.height + sizes.layer_gap)

    boxes = tuple(
        StepBox(step, layer, x_of(_step(step, layer_of)) - sizes.width // 2, y_of(_step(step, layer_of)))
        for step, layer in layer_of.items()
    )
    edges = []
    for chain in chains:
        first, *between, last = chain
        points = [(x_of(first), y_of(first) + sizes.height)]
        for place in between:
            points += [(x_of(place), y_of(place)), (x_of(place), y_of(place) + sizes.height)]
        edges.append(EdgeLine(first[0], last[0], (*points, (x_of(last), y_of(last)))))
    height = 2 * sizes.margin + (max(layer_of.values()) + 1) * (sizes.height + sizes.layer_gap) - sizes.layer_gap
    return GraphDrawing(round(right - left), height, boxes, tuple(edges))
