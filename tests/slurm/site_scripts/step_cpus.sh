#!/bin/bash
#SBATCH -p gpu --nodes=1 --ntasks-per-node=4 --cpus-per-task=8 --gres=gpu:a100:4 --mem=240G
srun python train.py --bs 16 --workers 8
