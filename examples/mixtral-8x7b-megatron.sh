#!/bin/bash
# Mixtral-8x7B pretraining with Megatron-LM on 128 H100s: experts over eight devices, four
# pipeline stages, data parallel over the rest.
#SBATCH --nodes=16
#SBATCH --gpus-per-node=h100:8

export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-16}

MODEL_OPTIONS=" \
    --use-mcore-models \
    --num-layers 32 \
    --hidden-size 4096 \
    --ffn-hidden-size 14336 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 8 \
    --seq-length 4096 \
    --max-position-embeddings 32768 \
    --position-embedding-type rope \
    --rotary-base 1000000 \
    --normalization RMSNorm \
    --swiglu \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --tokenizer-type Llama2Tokenizer \
    --tokenizer-model /data/mixtral/tokenizer.model"

MOE_OPTIONS=" \
    --num-experts 8 \
    --moe-router-topk 2 \
    --moe-router-load-balancing-type aux_loss \
    --moe-aux-loss-coeff 1e-2 \
    --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall"

torchrun --nproc_per_node=$GPUS_PER_NODE --nnodes=$NNODES \
    --rdzv_backend c10d --rdzv_endpoint ${MASTER_ADDR:-localhost}:29500 \
    pretrain_gpt.py $MODEL_OPTIONS $MOE_OPTIONS \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 4 \
    --expert-model-parallel-size 8 \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --overlap-param-gather \
    --micro-batch-size 1 \
    --global-batch-size 256 \
    --bf16 \
    --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --train-iters 500000 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --clip-grad 1.0 --weight-decay 0.1 \
    --data-path /data/tokens_text_document --split 99990,8,2
