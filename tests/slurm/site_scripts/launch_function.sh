#!/bin/bash
#SBATCH -A acct -p gpu -q debug -C ib -N 1 -n 1 -c 32 -G 4 -t 30
: "${BATCH:=8}"
launch() {
  uv run --frozen torchrun --standalone --nproc-per-node="$SLURM_GPUS" "$@"
}
if [[ -d /scratch ]]; then export HF_HOME=/scratch/hf; fi
launch train.py --bs "$BATCH"
