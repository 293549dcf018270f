#!/bin/bash
# Fine-tune on the workstation's 8 GB card.
set -euo pipefail

python scripts/train_car_clip.py --epochs 20 --lr 2e-5 --batch_size 16 --gradient_accumulation 8
