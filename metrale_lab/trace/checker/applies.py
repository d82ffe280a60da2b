"""Which laws say nothing about an engine, because it has none of what they speak of."""

from __future__ import annotations

from metrale_lab.trace.checker.world import World

NOT_APPLICABLE = "not applicable: "

_OF_THE_CACHE = ("I9", "I10", "I11", "I12", "I20")
_OF_THE_SCHEDULER = ("I15", "I16")


def why_not(law: str, world: World) -> str:
    """Why the law cannot be broken here; "" when it can."""
    if law == "I22":
        return "it compares a run that is watched with one that is not"
    if law == "I14" and not world.adapters:
        return "no adapter has been loaded"
    if law == "I13" and getattr(world.model, "slots", None) is None:
        return "there are no slots"
    if law in _OF_THE_CACHE and world.tree is None:
        return "there is no prefix cache"
    if law in _OF_THE_SCHEDULER and world.scheduler is None:
        return "there is no scheduler"
    if law == "I18" and not getattr(getattr(world.scheduler, "router", None), "ring_slots", ()):
        return "there is no ring of results"
    return ""


def applies(detail: str) -> bool:
    """Whether the detail of a law that holds is about an engine that could break it."""
    return not detail.startswith(NOT_APPLICABLE)
