"""The files that contain a word: each text is looked at once for all words that are expected."""

from __future__ import annotations

import re

import pytest

from preflight.study.launchers import Index

TEXTS = {
    "a.sh": "python train.py --lr 1\npython my-train.py",
    "b.yaml": "program: my-train.py\n# été train2\n",
    "c.py": "import train_it\nfrom été import train\n",
    "d.sh": "python réseau.py; ./train",
    "e.sh": "",
}
WORDS = ("train", "my-train", "train_it", "train2", "seau", "réseau", "py", "t", "", "my", "train.py")


@pytest.mark.parametrize("expected", [(), WORDS, WORDS[::2]], ids=["none", "all", "some"])
def test_a_word_is_found_whether_it_is_expected_or_not(expected: tuple[str, ...]) -> None:
    index = Index(frozenset(word.encode() for word in expected))
    for path, text in TEXTS.items():
        index.add(path, text)
    for word in WORDS:
        there = [path for path, text in TEXTS.items() if word in re.findall(r"[A-Za-z0-9_\-]+", text)]
        assert index.files(word) == there, word


def test_files_that_are_left_out_are_not_given_again() -> None:
    index = Index(frozenset())
    for path, text in TEXTS.items():
        index.add(path, text)
    index.leave("train", ["a.sh"])
    assert index.files("train") == ["a.sh"]


class _Text(str):
    """A text that counts how often it is searched as a whole."""

    searched = 0

    def __contains__(self, word: object) -> bool:
        _Text.searched += 1
        return super().__contains__(word)  # type: ignore[operator]


def test_expected_words_are_not_searched_again() -> None:
    _Text.searched = 0
    index = Index(frozenset(b"w%d" % number for number in range(100)))
    index.add("a.py", _Text("w1 w2"))
    assert [number for number in range(100) if index.files(f"w{number}")] == [1, 2]
    assert _Text.searched == 0
    assert index.files("other") == index.files("other") == []
    assert _Text.searched == 1
