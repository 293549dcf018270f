#!/bin/bash
#SBATCH -J seeds
#SBATCH -p gpu
#SBATCH --gres=gpu:a100:1
#SBATCH -c 8
#SBATCH --mem 32G
#SBATCH -t 0-12:00
#SBATCH --array=0-9%3
#SBATCH -o logs/%A_%a.out
set -euo pipefail
source ~/.bashrc
conda activate myenv
SEEDS=(1 7 13 42 99 123 256 512 1024 2048)
SEED=${SEEDS[$SLURM_ARRAY_TASK_ID]}
mkdir -p runs/$SEED
python train.py --bs 16 --seed "$SEED"
