#!/bin/bash
#SBATCH -p gpu --gres=gpu:a100:1 --mem=48G -c 8
BS=${1:-16}
python make_config.py --out cfg_$SLURM_JOB_ID.yaml
python train.py --bs ${BS} --seed $RANDOM
