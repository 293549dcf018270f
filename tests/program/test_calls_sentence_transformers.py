"""Programs of sentence-transformers and of models that see: what is read of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls_as_text import told

CALLS = [
    (
        "from sentence_transformers import SentenceTransformer\nmodel = SentenceTransformer('all-MiniLM-L6-v2')",
        {"model.name": "sentence-transformers/all-MiniLM-L6-v2", "task": "contrastive"},
    ),
    (
        "from sentence_transformers import SentenceTransformer, models\n"
        "words = models.Transformer('bert-base-uncased', max_seq_length=256)\n"
        "model = SentenceTransformer(modules=[words, models.Pooling(768)])",
        {"model.name": "bert-base-uncased", "task": "contrastive", "train.seq_len": 256},
    ),
    (
        "from sentence_transformers import CrossEncoder\nmodel = CrossEncoder('distilroberta-base', num_labels=1)",
        {"model.name": "distilroberta-base", "task": "sequence-classification"},
    ),
    (
        "from sentence_transformers import losses\nloss = losses.TripletLoss(model)",
        {"model.kwargs.texts": 3},
    ),
    (
        "from sentence_transformers.losses import CachedMultipleNegativesRankingLoss as Cached\nloss = Cached(model)",
        {"model.kwargs.mini_batch_size": 32},
    ),
    (
        "import transformers\n"
        "model = transformers.SegformerForSemanticSegmentation.from_pretrained('nvidia/mit-b0', num_labels=args.accum)",
        {"model.name": "nvidia/mit-b0", "task": "other", "model.config.num_labels": 4},
    ),
    (
        "import transformers\n"
        "model = transformers.VideoMAEForPreTraining.from_pretrained('MCG-NJU/videomae-base')",
        {"model.name": "MCG-NJU/videomae-base"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), CALLS)
def test_what_a_call_says(text: str, said: dict[str, object], tmp_path: Path) -> None:
    found = told(text, tmp_path)
    assert {name: found.get(name) for name in said} == said
