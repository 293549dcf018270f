"""A study over models of seven sizes, of which some do not fit."""

import argparse

import optuna
import torch

from preflight import guard

parser = argparse.ArgumentParser()
parser.add_argument("--guard", action="store_true")
args = parser.parse_args()
WIDTHS = [32, 64, 128, 256, 512, 1024, 2048]


def objective(trial, batch=2048, accumulation=1):
    width = trial.suggest_categorical("width", WIDTHS)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = torch.randn(2048, 64)
    for start in range(0, 2048, batch):
        (model(samples[start : start + batch]).pow(2).mean() / accumulation).backward()
    optimizer.step()
    return float(sum(one.abs().mean().detach() for one in model.parameters()))


study = optuna.create_study(sampler=optuna.samplers.GridSampler({"width": WIDTHS}))
study.optimize(guard.optuna(objective, halve="batch", floor=512) if args.guard else objective, n_trials=len(WIDTHS))
for trial in study.trials:
    print(trial.state.name, trial.params["width"], trial.user_attrs.get("preflight.oom_batch", ""))
print("done")
