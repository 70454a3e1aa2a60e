"""Every prompt holds its answer exactly as often as it should, and fits where it should."""

import re

import pytest
from kvtriage.eval.tasks import TASKS, Prompt, build, found_share
from kvtriage.eval.tasks.prompt import enumerate_words

SEEDS = range(25)


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def occurrences(word: str, text: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text))


def prompts(task: str, tokens: int = 400) -> list[Prompt]:
    return [build(task, seed, tokens, words) for seed in SEEDS]


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_prompt_and_another_one_another(task):
    first, second = prompts(task), prompts(task)
    assert first == second
    assert len({prompt.context for prompt in first}) == len(SEEDS)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tokens", [250, 777])
def test_the_context_is_the_largest_that_fits(task, tokens):
    for prompt in prompts(task, tokens):
        size = words(prompt.context)
        assert size <= tokens
        if task != "key-value":  # whose list of names ends
            assert size > tokens - 60  # one round of common words


@pytest.mark.parametrize("task", TASKS)
def test_reply_and_answers_agree(task):
    for prompt in prompts(task):
        assert prompt.reply == " " + enumerate_words(prompt.answers)
        assert found_share(prompt.answers, prompt.reply) == 1.0
        assert len(set(prompt.answers)) == len(prompt.answers)
        asked = prompt.question + prompt.lead
        assert not any(occurrences(answer, asked) for answer in prompt.answers)


@pytest.mark.parametrize(
    "task", ["needle-single", "needle-multi-key", "needle-multi-value", "needle-multi-query", "key-value"]
)
def test_every_value_stands_once_in_the_context(task):
    for prompt in prompts(task):
        assert [occurrences(answer, prompt.context) for answer in prompt.answers] == [1] * len(prompt.answers)


def test_needles_answer_their_question():
    for prompt in prompts("needle-multi-key"):
        key = re.search(r"code of ([a-z]+-[a-z]+)\?", prompt.question)[1]
        assert f"The access code of {key} is {prompt.answers[0]}." in prompt.context
        assert prompt.context.count("The access code of") == 4
    for prompt in prompts("needle-multi-value"):
        key = re.search(r"codes of ([a-z]+-[a-z]+)\?", prompt.question)[1]
        values = re.findall(rf"The access code of {key} is (\d+)\.", prompt.context)
        assert values == list(prompt.answers)
    for prompt in prompts("needle-multi-query"):
        keys = re.findall(r"[a-z]+-[a-z]+", prompt.question)
        stated = dict(re.findall(r"The access code of ([a-z-]+) is (\d+)\.", prompt.context))
        assert [stated[key] for key in keys] == list(prompt.answers) and len(stated) == 4


def test_pairs_answer_their_question():
    for prompt in prompts("key-value"):
        key = re.search(r"key ([a-z]+-[a-z]+)\?", prompt.question)[1]
        assert dict(re.findall(r"([a-z-]+): (\d+)", prompt.context))[key] == prompt.answers[0]


def test_variables_can_be_traced_by_the_rules_of_the_text():
    for prompt in prompts("variable-tracking"):
        value = re.search(r"value (\d+)\?", prompt.question)[1]
        held = {}
        for name, given in re.findall(r"VAR ([A-Z]{2}) = ((?:VAR [A-Z]{2})|\d+)\.", prompt.context):
            held[name] = held[given[4:]] if given.startswith("VAR") else given
        assert [name for name in held if held[name] == value] == list(prompt.answers)
        assert len(held) == 6


def test_common_words_come_four_times_as_often_as_all_others():
    for prompt in prompts("common-words"):
        listed = prompt.context.partition("\n\n")[2].split(", ")
        counts = {word: listed.count(word) for word in listed}
        least = min(counts.values())
        assert {word for word, count in counts.items() if count == 4 * least} == set(prompt.answers)
        assert set(counts.values()) == {least, 4 * least}


def test_what_cannot_be_built_is_said():
    with pytest.raises(KeyError):
        build("needle-quadruple", 0, 400, words)
    with pytest.raises(ValueError, match="does not fit"):
        build("common-words", 0, 10, words)


def test_found_share_counts_whole_words():
    assert found_share(("12345", "777"), "It is 12345, not 7777.") == 0.5
    assert found_share(("AB",), "CAB ABC") == 0.0
    assert found_share(("AB",), "so: AB.") == 1.0
