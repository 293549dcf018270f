#!/bin/bash -l
#SBATCH --account=proj
#SBATCH --qos=normal
#SBATCH --partition=gpu
#SBATCH --time=02:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=a100:4
#SBATCH --mem-per-cpu=4G
module purge
module load pytorch/2.1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + ${SLURM_JOBID: -4}))
export WORLD_SIZE=$SLURM_NTASKS
srun --gpus-per-task=1 --gpu-bind=closest python -u train.py --bs 16
