"""Resources of nltk and spaCy that are not there: their tokenizers without what they learned, and empty word lists."""

from __future__ import annotations

from typing import Any

from ..patches import wrap
from ..tape import Tape

_WORDS = ("a", "an", "and", "in", "is", "it", "of", "the", "to")


class _Corpus:
    """A corpus of nltk's that is not there: a few words, whatever is asked of it."""

    def words(self, *_: Any, **__: Any) -> list[str]:
        return list(_WORDS)

    def raw(self, *_: Any, **__: Any) -> str:
        return " ".join(_WORDS)

    def sents(self, *_: Any, **__: Any) -> list[list[str]]:
        return [list(_WORDS)] * 64

    paras = tagged_sents = sents

    def fileids(self, *_: Any, **__: Any) -> list[str]:
        return ["made-up"]

    def synsets(self, *_: Any, **__: Any) -> list[Any]:
        return []

    categories, lemmas = fileids, synsets

    def morphy(self, word: str, *_: Any, **__: Any) -> str:
        return word


class Languages:
    """The stand-ins, each said once."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _said(self, what: str) -> None:
        self._tape.assume(f"{what}: it decides how many words a text has, and which", "train.seq_len")

    def _tokenized(self, real: Any, text: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(text, *args, **kwargs)
        except LookupError:
            self._said("nltk's model of sentences is not there: texts are split at spaces and points")
            return text.replace(".", " .").split()

    def _sentences(self, real: Any, text: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(text, *args, **kwargs)
        except LookupError:
            self._said("nltk's model of sentences is not there: texts are split at spaces and points")
            return [f"{one}." for one in text.split(".") if one.strip()] or [text]

    def tokenize(self, module: Any) -> None:
        """nltk.tokenize."""
        wrap(module, "word_tokenize", self._tokenized)
        wrap(module, "sent_tokenize", self._sentences)

    def tags(self, module: Any) -> None:
        """nltk.tag."""

        def tagged(real: Any, words: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(words, *args, **kwargs)
            except LookupError:
                self._said("nltk's tagger is not there: every word is a noun")
                return [(one, "NN") for one in words]

        wrap(module, "pos_tag", tagged)

    def corpora(self, module: Any) -> None:
        """nltk.corpus.util: corpora that are loaded when they are first asked for something."""

        def asked(real: Any, corpus: Any, name: str) -> Any:
            try:
                return real(corpus, name)
            except LookupError:
                found = getattr(_Corpus(), name, None)
                if found is None:
                    raise
                kind = getattr(corpus, "_LazyCorpusLoader__name", "a corpus")
                self._said(f"nltk's {kind} is not there: a few words stand for it")
                return found

        wrap(module.LazyCorpusLoader, "__getattr__", asked)

    def lemmas(self, module: Any) -> None:
        """nltk.stem.wordnet."""

        def lemma(real: Any, lemmatizer: Any, word: str, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(lemmatizer, word, *args, **kwargs)
            except LookupError:
                self._said("nltk's wordnet is not there: a word is its own lemma")
                return word

        wrap(module.WordNetLemmatizer, "lemmatize", lemma)

    def spacy(self, module: Any) -> None:
        """`spacy.load`: a pipeline that is not there is an empty one of its language, which has its tokenizer."""

        def loaded(real: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(name, *args, **kwargs)
            except OSError:
                language = str(name).partition("_")[0]
                try:
                    found = module.blank(language if len(language) in (2, 3) else "en")
                except ImportError:
                    found = module.blank("xx")
            self._said(f"spaCy's {name} is not there: the tokenizer of its language stands for it, without vectors")
            return found

        wrap(module, "load", loaded)
