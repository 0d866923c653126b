"""A graph of steps as a whole: whether it can run at all, and whether every reference in it can lead somewhere."""

from collections.abc import Iterator

from gnomon.core.conditions import check_condition
from gnomon.core.dag import upstream
from gnomon.core.references import check_references, references
from gnomon.core.said import key_text
from gnomon.core.workflow import Step, Workflow
from gnomon.errors import FieldError


def is_reference(text: str) -> bool:
    """Whether the text is one reference and nothing else."""
    return any(text == f"${{{path}}}" for path in references(text))


def check_graph(field: str, workflow_id: str, steps: tuple[Step, ...]) -> None:
    """Refuse steps that could never be run in any order, or that refer to what cannot be there."""
    places = _places(field, steps)
    for index, step in enumerate(steps):
        _check_needs(f"{field}[{index}]", step, places)
        if step.workflow == workflow_id:
            raise FieldError(f"{field}[{index}].workflow", workflow_id, "is this job itself")
    cycle = _cycle(steps)
    if cycle:
        at = f"{field}[{places[cycle[0]]}].depends_on"
        raise FieldError(at, cycle[1], f"closes a circle: {' -> '.join(cycle)}")
    graph = Workflow(workflow_id=workflow_id, version=1, steps=steps)
    for index, step in enumerate(steps):
        _check_step(f"{field}[{index}]", step, graph)


def _places(field: str, steps: tuple[Step, ...]) -> dict[str, int]:
    """Where each step stands."""
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        if step.name in places:
            reason = f"is already the name of dag[{places[step.name]}]"
            raise FieldError(f"{field}[{index}].step", step.name, reason)
        places[step.name] = index
    return places


def _check_needs(field: str, step: Step, places: dict[str, int]) -> None:
    for number, needed in enumerate(step.depends_on):
        at = f"{field}.depends_on[{number}]"
        if needed == step.name:
            raise FieldError(at, needed, "is the step itself")
        if needed not in places:
            raise FieldError(at, needed, "is no step of this dag")
        if needed in step.depends_on[:number]:
            raise FieldError(at, needed, "is named a second time")


def _cycle(steps: tuple[Step, ...]) -> list[str]:
    """Steps of which each needs the next and the last is the first; none, if there is an order to run them in."""
    needs = {step.name: set(step.depends_on) for step in steps}
    needed_by: dict[str, list[str]] = {step.name: [] for step in steps}
    for step in steps:
        for needed in step.depends_on:
            needed_by[needed].append(step.name)
    ready = [name for name, needed in needs.items() if not needed]
    while ready:
        done = ready.pop()
        del needs[done]
        for name in needed_by[done]:
            needs[name].discard(done)
            if not needs[name]:
                ready.append(name)
    if not needs:
        return []
    # Each step that is left needs another that is left, so following them comes back to one of them.
    way = [next(iter(needs))]
    while way.count(way[-1]) < 2:
        way.append(min(needs[way[-1]]))
    return way[way.index(way[-1]) :]


def _check_step(field: str, step: Step, graph: Workflow) -> None:
    found = list(_values(field, step))
    if not any(True for _, value, _ in found for _ in references(value)):
        return
    before = upstream(graph, step.name)
    for at, value, item in found:
        check_references(at, value, before, item=item)


def _values(field: str, step: Step) -> Iterator[tuple[str, object, bool]]:
    """All of a step that may refer to something: where it stands, what it is, and whether an item is at hand there."""
    inputs = field if step.command else f"{field}.input"
    yield from ((f"{inputs}.{key_text(key)}", value, step.foreach is not None) for key, value in step.input.items())
    yield f"{field}.foreach", step.foreach, False
    yield f"{field}.delay_until", step.delay_until, False
    if step.condition is not None:
        yield from ((f"{field}.if", path, False) for path in _asked(f"{field}.if", step.condition))


def _asked(field: str, condition: str) -> Iterator[str]:
    """The paths of a condition, in the form of references."""
    for path in sorted(check_condition(field, condition)):
        if not is_reference(f"${{{path}}}"):
            raise FieldError(field, path, "is no path to a value, such as steps.check.output.rows")
        yield f"${{{path}}}"
