"""A tiny model and a reading of it, for every test of the measures."""

from __future__ import annotations

from collections.abc import Iterator

import kvtriage
import pytest
from kvtriage.eval.models import LoadedModel
from kvtriage.eval.reading import Reading
from tiny_model import tiny_model


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    return tiny_model()


@pytest.fixture
def reading(loaded: LoadedModel, session: kvtriage.Session) -> Iterator[Reading]:
    made = Reading(loaded, session, capacity=160)
    yield made
    made.close()
