"""Fine-tunes a classifier; every option is one that the sweep sets."""

import argparse

from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", default="bert-base-uncased")
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--weight_decay", type=float, default=0.0)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForSequenceClassification.from_pretrained(args.model_name, num_labels=2)

    def encode(batch):
        return tokenizer(batch["text"], truncation=True, padding="max_length", max_length=args.max_length)

    data = load_dataset("imdb").map(encode, batched=True)
    arguments = TrainingArguments(
        output_dir="runs",
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        weight_decay=args.weight_decay,
        bf16=True,
        report_to="wandb",
    )
    Trainer(model, arguments, train_dataset=data["train"], eval_dataset=data["test"]).train()


if __name__ == "__main__":
    main()
