"""Fine-tunes CLIP on pictures of cars and their descriptions."""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPModel, CLIPProcessor

MODEL = "openai/clip-vit-base-patch32"


class CarPairs(Dataset):
    """A JSON list of {"image": path, "text": description}."""

    def __init__(self, index: str, processor: CLIPProcessor) -> None:
        self.pairs = json.loads(Path(index).read_text())
        self.processor = processor

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> dict:
        pair = self.pairs[i]
        image = Image.open(pair["image"]).convert("RGB")
        item = self.processor(
            text=pair["text"], images=image, padding="max_length", max_length=77, truncation=True, return_tensors="pt"
        )
        return {name: value.squeeze(0) for name, value in item.items()}


def contrastive_loss(logits_per_image: torch.Tensor) -> torch.Tensor:
    """Each picture against every text of the batch, and the other way round."""
    labels = torch.arange(len(logits_per_image), device=logits_per_image.device)
    return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_image.t(), labels)) / 2


@torch.no_grad()
def validate(model: CLIPModel, loader: DataLoader, device: str) -> float:
    model.eval()
    total = 0.0
    for batch in loader:
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast("cuda", dtype=torch.float16):
            total += contrastive_loss(model(**batch).logits_per_image).item()
    model.train()
    return total / len(loader)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_index", default="data/train.json")
    parser.add_argument("--val_index", default="data/val.json")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulation", type=int, default=8)
    parser.add_argument("--num_workers", type=int, default=4)
    args = parser.parse_args()

    device = "cuda"
    processor = CLIPProcessor.from_pretrained(MODEL)
    model = CLIPModel.from_pretrained(MODEL, torch_dtype=torch.float32).to(device)
    train_loader = DataLoader(
        CarPairs(args.train_index, processor),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.num_workers,
        prefetch_factor=2,
        pin_memory=True,
        drop_last=True,
    )
    val_loader = DataLoader(
        CarPairs(args.val_index, processor), batch_size=args.batch_size, num_workers=args.num_workers, pin_memory=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cuda")

    for epoch in range(args.epochs):
        for step, batch in enumerate(train_loader):
            batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                outputs = model(**batch)
                loss = contrastive_loss(outputs.logits_per_image) / args.gradient_accumulation
            scaler.scale(loss).backward()
            if (step + 1) % args.gradient_accumulation == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch + 1}: validation loss {validate(model, val_loader, device):.4f}")
        model.save_pretrained("checkpoints/car-clip")


if __name__ == "__main__":
    main()
