"""Questions whose answer stands in the prompt: the kinds of the RULER benchmark, generated here.

Every generator is a function of a seed and a size; the same seed gives the same prompt. `build` fits the
size to a number of tokens. Nothing here knows of models but through a function that counts tokens.
"""

from kvtriage.eval.tasks.build import TASKS, build
from kvtriage.eval.tasks.prompt import Prompt, found_share

__all__ = ["TASKS", "Prompt", "build", "found_share"]
