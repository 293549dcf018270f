#!/bin/bash
#SBATCH -p gpu
#SBATCH --nodes=1 --ntasks=4 --gpus-per-task=1 --cpus-per-task=8 --mem-per-cpu=4G
for lr in 1 2 3 4; do
  srun --exact -n1 -c8 --gpus-per-task=1 --mem-per-cpu=4G python train.py --bs 16 --seed $lr &
done
wait
