#!/bin/bash
#SBATCH -p gpu
#SBATCH --nodes=1 --ntasks=4 --gpus=4 --cpus-per-task=8 --mem=200G
for i in 0 1 2 3; do
    CUDA_VISIBLE_DEVICES=$i python train.py --bs 16 --seed $i > log_$i.txt 2>&1 &
done
wait
