"""Filler prose and unlike names, from a seed. Our own words, so that no text has to be at hand."""

from __future__ import annotations

import random

WHO = (
    "The gardener", "A clerk", "The ferryman", "My neighbour", "The baker", "An old pilot", "The surveyor",
    "The librarian", "A young cook", "The night guard", "The carpenter", "A visiting nurse",
)  # fmt: skip
DID = (
    "carried", "counted", "painted", "repaired", "forgot", "sold", "borrowed", "described", "measured",
    "wrapped", "found", "polished",
)  # fmt: skip
WHAT = (
    "a wooden ladder", "the blue lanterns", "two heavy ropes", "a basket of pears", "the broken clock",
    "a map of the coast", "some copper pipes", "the garden chairs", "a bundle of letters", "the iron gate",
    "a pair of gloves", "the last tins of paint",
)  # fmt: skip
WHERE = (
    "near the harbour", "behind the mill", "on the upper floor", "beside the railway", "in the cold cellar",
    "at the market", "under the bridge", "by the north door", "across the valley", "in the long corridor",
)  # fmt: skip
WHEN = (
    "before sunrise", "after the storm", "in the early spring", "on a quiet evening", "during the fair",
    "late in the week", "while it rained", "at the end of the month",
)  # fmt: skip
COLOURS = (
    "amber", "crimson", "silver", "violet", "ivory", "scarlet", "golden", "turquoise", "russet", "cobalt",
    "olive", "coral",
)  # fmt: skip
THINGS = (
    "falcon", "harbor", "lantern", "meadow", "anchor", "canyon", "compass", "orchard", "tunnel", "glacier",
    "violin", "saddle", "beacon", "pebble", "thicket", "ladder",
)  # fmt: skip


def sentence(source: random.Random) -> str:
    """One sentence about nothing."""
    who, did, what, where, when = (source.choice(part) for part in (WHO, DID, WHAT, WHERE, WHEN))
    return f"{who} {did} {what} {where} {when}."


def names(source: random.Random, count: int) -> list[str]:
    """`count` different names of two words, joined by a hyphen."""
    every = [f"{colour}-{thing}" for colour in COLOURS for thing in THINGS]
    return source.sample(every, count)


def numbers(source: random.Random, count: int, digits: int) -> list[str]:
    """`count` different numbers of so many digits."""
    return [str(number) for number in source.sample(range(10 ** (digits - 1), 10**digits), count)]


def scatter(source: random.Random, needles: list[str], sentences: int) -> str:
    """`sentences` sentences of filler with the needles at random places, in their order."""
    places = sorted(source.randrange(sentences + 1) for _ in needles)
    filler = [sentence(source) for _ in range(sentences)]
    for place, needle in reversed(list(zip(places, needles))):
        filler.insert(place, needle)
    return " ".join(filler)
