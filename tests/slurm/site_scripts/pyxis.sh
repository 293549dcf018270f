#!/bin/bash
#SBATCH -p gpu -N 2 --ntasks-per-node 4 --gpus-per-node 4 --mem=0 --exclusive
#SBATCH --container-image=nvcr.io#nvidia/pytorch:24.05-py3
srun --container-mounts=$PWD:/w --container-workdir=/w bash -c "
  export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID
  python train.py --bs 8
"
