#!/bin/bash
# DeepSeek-V3 pretraining with Megatron-LM on 1,024 H100s: experts over 64 devices, sixteen
# pipeline stages, fp8 matmuls.
#SBATCH --nodes=128
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:h100:8

export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_FUSED_ATTN=1

MODEL_ARGS=(
    --use-mcore-models
    --transformer-impl transformer_engine
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --kv-channels 128
    --seq-length 4096
    --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --qk-layernorm
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model deepseek-ai/DeepSeek-V3
    --make-vocab-size-divisible-by 3232
)

MOE_ARGS=(
    --num-experts 256
    --moe-router-topk 8
    --moe-ffn-hidden-size 2048
    --moe-shared-expert-intermediate-size 2048
    --moe-layer-freq '([0]*3+[1]*58)'
    --moe-router-load-balancing-type seq_aux_loss
    --moe-router-score-function sigmoid
    --moe-router-enable-expert-bias
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-grouped-gemm
    --moe-permute-fusion
    --moe-token-dispatcher-type flex
    --moe-enable-deepep
    --mtp-num-layers 1
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 16
    --expert-model-parallel-size 64
    --expert-tensor-parallel-size 1
    --decoder-last-pipeline-num-layers 1
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 8192
    --train-samples 585937500
    --bf16
    --fp8-format e4m3
    --fp8-recipe blockwise
    --recompute-granularity selective
    --recompute-modules mla_up_proj layernorm mlp
    --lr 2.2e-4 --min-lr 2.2e-5 --lr-decay-style cosine
    --clip-grad 1.0 --weight-decay 0.1
)

srun torchrun --nproc_per_node 8 --nnodes ${SLURM_NNODES} pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" \
    --data-path /data/tokens_text_document --split 99,1,0
