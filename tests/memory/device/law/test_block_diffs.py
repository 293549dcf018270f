"""Blocks of a tape as they are filed."""

from __future__ import annotations

import random

import pytest

from preflight.memory.device.law import store
from preflight.memory.device.law.block_diffs import shorten, whole


def _block(rng: random.Random, tokens: int) -> list[str]:
    births, words = 0, []
    for _ in range(tokens):
        if births and rng.random() < 0.4:
            where = rng.choice(["", "", "/2", "~-1", "/4@0"])
            words.append(f"{rng.choice('-+')}{rng.randrange(births)}{where}")
        else:
            words.append(f"{rng.randrange(30)}{rng.choice(['', '', 'g', 'o'])}")
            births += 1
    return words


def test_blocks_are_read_back_as_they_were() -> None:
    rng = random.Random(5)
    texts = []
    for _ in range(20):
        words = _block(rng, rng.randrange(40))
        for _ in range(4):  # neighbours that differ in a birth more or less, as setups do
            texts.append(" ".join(words) + "|" + " ".join(f"{rng.randrange(9)}*{n}" for n in range(rng.randrange(4))))
            at = rng.randrange(len(words) + 1)
            words = [*words[:at], "7", *words[at:]]
    filed = shorten(texts)
    assert [whole(filed, n) for n in range(len(texts))] == texts
    assert any(text.startswith("=") for text in filed)


def test_a_birth_more_leaves_the_other_words_as_they_were() -> None:
    texts = ["1 2 3 4 5 6 7 -6 -5|0", "1 9 2 3 4 5 6 7 -7 -6|0"]
    assert shorten(texts)[1] == "=0 1:0 9"


@pytest.mark.parametrize("name", ["vit", "gpt2"])
def test_shipped_laws_pack_to_the_same_laws(name: str) -> None:
    made = {key: store.load(store.LawKey(name, key)) for key in store.keys(name)[:6]}
    packed = store.pack({key: law for key, law in made.items() if law is not None})
    assert {key: store._unpack(packed, entry) for key, entry in packed["laws"].items()} == made
