"""What help() names is there, under the name that Python has for it."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import radixkv
import radixkv.net

MODULES = (radixkv, radixkv.net, radixkv.dtypes)
CLASSES = {
    name: item
    for module in MODULES
    for name, item in vars(module).items()
    if inspect.isclass(item) and not name.startswith("_")
}
# What is told to be somebody else's.
OUTSIDE = {"help", "begin_row", "receiver"}
# All that something in backticks with parentheses can be, whoever has it.
NAMES = {name for owner in (*MODULES, *CLASSES.values()) for name in dir(owner)}


def docs() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        yield module.__name__, module.__doc__ or ""
        for name, item in vars(module).items():
            ours = str(getattr(item, "__module__", "")).startswith("radixkv")
            if ours and not name.startswith("_") and callable(item):
                yield name, item.__doc__ or ""
    for name, item in CLASSES.items():
        for member, value in vars(item).items():
            if not member.startswith("_"):
                yield f"{name}.{member}", getattr(value, "__doc__", None) or ""


def missing(text: str) -> list[str]:
    """Members that a text names and that there are not."""
    members = re.findall(r"\b([A-Z]\w+)\.(\w+)", text)
    calls = re.findall(r"`(\w+)\(", text)
    return [
        f"{owner}.{name}"
        for owner, name in members
        if owner in CLASSES and not hasattr(CLASSES[owner], name)
    ] + [name for name in calls if name not in NAMES | OUTSIDE]


def test_what_docstrings_name_is_there() -> None:
    assert missing("`Cache.begin()`, see Sequence.copies()") == []
    assert missing("`Sequence.begin()`") == ["Sequence.begin"]
    texts = list(docs())
    assert len(texts) > 400
    wrong = {where: gone for where, text in texts if (gone := missing(text))}
    assert not wrong


def test_what_the_readme_names_is_there() -> None:
    assert missing((Path(__file__).parents[1] / "README.md").read_text()) == []
