#!/bin/bash
#SBATCH --job-name=serve
#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:8
#SBATCH --ntasks-per-node=1
#SBATCH --time=08:00:00
export MODEL=deepseek-ai/DeepSeek-R1
TP_SIZE=16  # over both nodes
# vllm serve an/older-model --tensor-parallel-size 2
srun --container-image=lmsysorg/sglang:v0.5.2-cu126 \
  python3 -m sglang.launch_server --model-path "$MODEL" --tp $TP_SIZE --nnodes ${SLURM_NNODES} --node-rank $SLURM_NODEID \
    --dp 16 --enable-dp-attention --max-running-requests 512 --mem-fraction-static 0.85 2>&1 | tee log &
wait
