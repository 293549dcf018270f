"""Search encoders and training settings for a sentence classifier.

python scripts/tune_max.py --study criteria --n-trials 200
"""

import argparse
import csv
from pathlib import Path

import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

DATA = Path("data")
MODEL_CHOICES = [
    "bert-base-uncased",
    "bert-large-uncased",
    "roberta-base",
    "roberta-large",
    "microsoft/deberta-v3-base",
    "microsoft/deberta-v3-large",
    "xlm-roberta-base",
]


def suggest_common(trial: optuna.Trial, heavy: bool) -> dict:
    if heavy:
        max_len = trial.suggest_int("tok.max_length", 128, 384, step=32)
        bsz = trial.suggest_categorical("train.batch_size_heavy", [8, 12, 16])
        accum = trial.suggest_categorical("train.grad_accum_heavy", [1, 2, 3, 4])
    else:
        max_len = trial.suggest_int("tok.max_length", 128, 512, step=32)
        bsz = trial.suggest_categorical("train.batch_size", [8, 12, 16, 24, 32, 48, 64])
        accum = trial.suggest_categorical("train.grad_accum", [1, 2, 3, 4, 6, 8])
    return {
        "tok": {"max_length": max_len},
        "train": {"batch_size": bsz, "grad_accum": accum, "epochs": 3},
        "optim": {
            "lr": trial.suggest_float("optim.lr", 5e-6, 5e-5, log=True),
            "weight_decay": trial.suggest_float("optim.weight_decay", 0.0, 0.1),
            "warmup": trial.suggest_float("optim.warmup", 0.0, 0.2),
        },
    }


def build_config(trial: optuna.Trial) -> dict:
    model_name = trial.suggest_categorical("model.name", MODEL_CHOICES)
    heavy = any(part in model_name for part in ["-large", "large", "xlm-roberta"])
    cfg = suggest_common(trial, heavy)
    cfg["model"] = {"name": model_name}
    return cfg


def read_split(name: str) -> list[tuple[str, int]]:
    with open(DATA / f"{name}.csv", newline="", encoding="utf-8") as file:
        return [(row["text"], int(row["label"])) for row in csv.DictReader(file)]


def make_loader(rows, tokenizer, cfg: dict, shuffle: bool) -> DataLoader:
    def collate(batch):
        texts, labels = zip(*batch, strict=True)
        encoded = tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=cfg["tok"]["max_length"],
            return_tensors="pt",
        )
        encoded["labels"] = torch.tensor(labels)
        return encoded

    return DataLoader(rows, batch_size=cfg["train"]["batch_size"], shuffle=shuffle, num_workers=2, collate_fn=collate)


def run_training_eval(cfg: dict, trial: optuna.Trial) -> float:
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(cfg["model"]["name"])
    model = AutoModelForSequenceClassification.from_pretrained(cfg["model"]["name"], num_labels=2).to(device)
    train = make_loader(read_split("train"), tokenizer, cfg, shuffle=True)
    valid = make_loader(read_split("valid"), tokenizer, cfg, shuffle=False)
    accum = cfg["train"]["grad_accum"]

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["optim"]["lr"], weight_decay=cfg["optim"]["weight_decay"])
    steps = cfg["train"]["epochs"] * (len(train) // accum)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(steps * cfg["optim"]["warmup"]), steps)

    accuracy = 0.0
    for epoch in range(cfg["train"]["epochs"]):
        model.train()
        for index, batch in enumerate(train):
            batch = batch.to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss / accum
            loss.backward()
            if (index + 1) % accum == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)

        model.eval()
        right = 0
        with torch.no_grad():
            for batch in valid:
                batch = batch.to(device)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    logits = model(**batch).logits
                right += (logits.argmax(-1) == batch["labels"]).sum().item()
        accuracy = right / len(valid.dataset)
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return accuracy


def objective(trial: optuna.Trial) -> float:
    torch.manual_seed(trial.suggest_int("seed", 1, 65535))
    cfg = build_config(trial)
    try:
        return run_training_eval(cfg, trial)
    except torch.cuda.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        trial.set_user_attr("oom", str(error)[:200])
        raise optuna.TrialPruned("out of GPU memory") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="criteria")
    parser.add_argument("--n-trials", type=int, default=200)
    parser.add_argument("--storage", default="sqlite:///hpo.db")
    args = parser.parse_args()
    study = optuna.create_study(study_name=args.study, storage=args.storage, direction="maximize", load_if_exists=True)
    study.optimize(objective, n_trials=args.n_trials)
    print(study.best_trial.params)


if __name__ == "__main__":
    main()
