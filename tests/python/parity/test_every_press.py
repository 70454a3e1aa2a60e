"""No press of kvpress is forgotten."""

import importlib
import pkgutil

import kvpress.presses
from counterparts import COUNTERPARTS, WITHOUT_COUNTERPART
from kvpress import BasePress


def presses_of_kvpress() -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(kvpress.presses.__path__, "kvpress.presses."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, BasePress):
                found.add(name)
    return found


def test_every_press_has_a_counterpart_or_a_reason() -> None:
    listed = COUNTERPARTS.keys() | WITHOUT_COUNTERPART.keys()
    assert presses_of_kvpress() == listed
    assert not COUNTERPARTS.keys() & WITHOUT_COUNTERPART.keys()
