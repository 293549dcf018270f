#!/bin/bash
#SBATCH -p gpu --gres=gpu:a100:4 --nodes=1 --exclusive
#SBATCH --mem=0
cat > ds_config.json <<EOF
{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}
EOF
deepspeed --num_gpus 4 train.py --bs 4 --deepspeed ds_config.json
