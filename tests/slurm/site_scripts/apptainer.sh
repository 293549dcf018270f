#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --gpus=2
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=8
#SBATCH --mem-per-gpu=60G
#SBATCH --time=10:00:00
IMG=$SCRATCH/pytorch_24.05.sif
srun apptainer exec --nv --bind $PWD:/workspace --pwd /workspace $IMG python train.py --bs 16
