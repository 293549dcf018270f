#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:a100:4 -p gpu
#SBATCH --cpus-per-task=32 --mem=200G
scontrol show hostnames $SLURM_JOB_NODELIST > hosts
sed 's/$/ slots=4/' hosts > hostfile
deepspeed --hostfile=hostfile --master_port 12345 train.py --bs 8
