"""When an eviction is due."""

from __future__ import annotations

from kvtriage.transformers.schedule import Schedule


def dues(schedule: Schedule, passes: list[int]) -> list[int]:
    """Numbers of the passes before which the cache is compacted. A negative number is a crop."""
    found = []
    for number, tokens in enumerate(passes):
        if tokens <= 0:
            schedule.took_back(-tokens)
            continue
        if schedule.due(tokens, room=1000):
            found.append(number)
            schedule.evicted()
        schedule.forward_done(tokens)
    return found


def test_at_the_end_of_a_prompt_then_every_n_tokens() -> None:
    assert dues(Schedule(4), [100, *[1] * 10]) == [1, 5, 9]


def test_chunks_of_a_prompt_are_one_prompt() -> None:
    assert dues(Schedule(4), [100, 100, 37, 1, 1, 1]) == [3]


def test_each_turn_has_its_own_prompt() -> None:
    assert dues(Schedule(4), [100, 1, 1, 20, 1, 1, 1, 1, 1]) == [1, 4, 8]


def test_no_prompt_no_eviction_before_n_tokens() -> None:
    assert dues(Schedule(4), [1] * 9) == [4, 8]


def test_drafts_are_settled_first() -> None:
    """A pass of a prompt with drafts, then passes that verify 5 tokens and lose some of them."""
    assert dues(Schedule(8), [105, -3, 5, -2, 5, 0, 5, -4, 5]) == [2, 6]


def test_a_turn_that_follows_drafts_is_a_prompt() -> None:
    schedule = Schedule(8)
    dues(schedule, [105, -3, 5, -2])
    schedule.turn_begins()
    assert dues(schedule, [30, 1]) == [1]


def test_a_prompt_behind_a_crop_is_a_prompt() -> None:
    """A generated token was taken back: there were no drafts."""
    assert dues(Schedule(8), [100, 1, 1, -1, 30, 1]) == [1, 5]
    assert dues(Schedule(8), [100, 1, 0, 1, 0, 30, 1]) == [1, 6]


def test_room_is_made_for_generated_tokens() -> None:
    schedule = Schedule(100)
    dues(schedule, [50, 1])
    assert schedule.due(1, room=0) and not schedule.due(1, room=1)
    assert not schedule.due(20, room=19)  # a prompt has to fit
    dues(schedule, [55, -2, 5, -1])
    assert schedule.due(5, room=4) and not schedule.due(5, room=5)


def test_a_copy_goes_on_by_itself() -> None:
    schedule = Schedule(4)
    dues(schedule, [100])
    copy = schedule.copy()
    assert dues(schedule, [1, 1]) == [0]
    assert dues(copy, [1, 1]) == [0]
