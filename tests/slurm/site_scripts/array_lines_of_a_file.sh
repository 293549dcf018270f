#!/usr/bin/env bash
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --array=1-20
BS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" batch_sizes.txt)
python train.py --bs $BS
