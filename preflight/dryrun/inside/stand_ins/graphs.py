"""Graphs of PyTorch Geometric that cannot be had: made up, with the sizes that its documentation states.

Who is a neighbour of whom is drawn. So what takes whole graphs has its true sizes; a sample of neighbours has not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import torch

from ..patches import wrap
from ..tape import Tape


@dataclass(frozen=True)
class GraphSet:
    """Graphs, nodes and edges of each (average), features of a node, classes (of nodes where there is one graph)."""

    graphs: int
    nodes: float
    edges: float
    features: int
    classes: int
    edge_features: int = 0


SETS = {
    ("Planetoid", "cora"): GraphSet(1, 2708, 10556, 1433, 7),
    ("Planetoid", "citeseer"): GraphSet(1, 3327, 9104, 3703, 6),
    ("Planetoid", "pubmed"): GraphSet(1, 19717, 88648, 500, 3),
    ("Amazon", "computers"): GraphSet(1, 13752, 491722, 767, 10),
    ("Amazon", "photo"): GraphSet(1, 7650, 238162, 745, 8),
    ("Coauthor", "cs"): GraphSet(1, 18333, 163788, 6805, 15),
    ("Coauthor", "physics"): GraphSet(1, 34493, 495924, 8415, 5),
    ("WebKB", "cornell"): GraphSet(1, 183, 298, 1703, 5),
    ("WebKB", "texas"): GraphSet(1, 183, 325, 1703, 5),
    ("WebKB", "wisconsin"): GraphSet(1, 251, 515, 1703, 5),
    ("Actor", ""): GraphSet(1, 7600, 30019, 932, 5),
    ("Flickr", ""): GraphSet(1, 89250, 899756, 500, 7),
    ("TUDataset", "mutag"): GraphSet(188, 17.9, 39.6, 7, 2, 4),
    ("TUDataset", "enzymes"): GraphSet(600, 32.6, 124.3, 3, 6),
    ("TUDataset", "proteins"): GraphSet(1113, 39.1, 145.6, 3, 2),
    ("TUDataset", "imdb-binary"): GraphSet(1000, 19.8, 193.1, 0, 2),
    ("TUDataset", "reddit-binary"): GraphSet(2000, 429.6, 995.5, 0, 2),
    ("TUDataset", "collab"): GraphSet(5000, 74.5, 4914.4, 0, 3),
    ("QM9", ""): GraphSet(130831, 18.0, 37.3, 11, 19, 4),
    ("PPI", ""): GraphSet(20, 2245.3, 61318.4, 50, 121),
    ("GNNBenchmarkDataset", "mnist"): GraphSet(70000, 70.6, 564.5, 3, 10, 1),
    ("GNNBenchmarkDataset", "cifar10"): GraphSet(60000, 117.6, 941.2, 5, 10, 1),
}
"""torch_geometric/datasets: the tables of the classes' documentation (2.8)."""
MOST = 1024
"""Graphs that are made of a set with more: batches are drawn from them."""
_REGRESSION = ("QM9",)


class Graphs:
    """What stands for graphs that cannot be had."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def install(self, module: Any) -> None:
        """torch_geometric.data.in_memory_dataset: `InMemoryDataset`, which knows its files before it reads them."""
        cls = module.InMemoryDataset

        def prepared(real: Any, data: Any) -> None:
            known = getattr(data, "_dry_set", None)
            if known is None:
                try:
                    real(data)
                except (OSError, RuntimeError, ImportError, ValueError):
                    known = SETS.get((type(data).__name__, str(getattr(data, "name", "") or "").lower()))
                    if known is None:
                        raise
                    data._dry_set = known
            elif type(data).__name__ == "TUDataset":
                self._written(data, known)

        def loaded(real: Any, data: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            known = getattr(data, "_dry_set", None)
            if known is None:
                real(data, path, *args, **kwargs)
                return
            data.data, data.slices = data.collate(self._made(data, known))

        for name in ("_download", "_process"):
            wrap(cls, name, prepared)
        wrap(cls, "load", loaded)

    def _made(self, data: Any, known: GraphSet) -> list[Any]:
        name = str(getattr(data, "name", "") or type(data).__name__)
        self._tape.data_made_up = True
        words = f"the graphs of {name} are made up, with the sizes of the real ones"
        self._tape.assume(words, "" if known.graphs == 1 else "train.seq_len")
        kind = sys.modules["torch_geometric.data"].Data
        made = [_graph(kind, known, type(data).__name__ in _REGRESSION) for _ in range(min(known.graphs, MOST))]
        return made if data.pre_transform is None else [data.pre_transform(one) for one in made]

    def _written(self, data: Any, known: GraphSet) -> None:
        """TUDataset reads its file itself."""
        made, slices = data.collate(self._made(data, known))
        sizes = {"num_node_labels": known.features, "num_node_attributes": 0, "num_edge_labels": known.edge_features,
                 "num_edge_attributes": 0}  # fmt: skip
        os.makedirs(data.processed_dir, exist_ok=True)
        torch.save((made.to_dict(), slices, sizes, type(made)), data.processed_paths[0])


def _graph(kind: Any, known: GraphSet, regression: bool) -> Any:
    nodes = round(known.nodes)
    edges = torch.randint(0, nodes, (2, round(known.edges) // 2))
    found = kind(edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=nodes)
    if known.features:
        found.x = torch.rand(nodes, known.features)
    if known.edge_features:
        found.edge_attr = torch.rand(found.edge_index.shape[1], known.edge_features)
    if regression:
        found.y = torch.rand(1, known.classes)
    elif known.graphs == 1:
        found.y = torch.arange(nodes) % known.classes
        for i, part in enumerate(("train_mask", "val_mask", "test_mask")):
            setattr(found, part, torch.arange(nodes) % 3 == i)
    elif known.classes > 100:
        found.y = torch.rand(nodes, known.classes).round()
    else:
        found.y = torch.randint(0, known.classes, (1,))
        found.y[0] = known.classes - 1
    return found
