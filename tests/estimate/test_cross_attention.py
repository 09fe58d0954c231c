"""A layer that attends to another stack alone keeps what one that attends to itself keeps."""

from dataclasses import replace

from chipshift.estimate.kept import kept_by_layer
from chipshift.estimate.stack import stack as stack_of
from chipshift.models.model import Attention, DenseMlp, Layer
from chipshift.models.ops import Cut, layer_ops


def test_a_look_at_an_image_keeps_queries_keys_and_output() -> None:
    own = Attention(heads=8, kv_heads=2, head_dim=16, v_head_dim=16)
    block = Layer(own, DenseMlp(300), 256)
    look = replace(block, attention=None, cross=replace(own, causal=False, kv_from="vision"))
    cut, stack = Cut(tokens=64.0, seq_len=64.0), stack_of("megatron", "h100")
    kept = [kept_by_layer(ly, 128, cut, layer_ops(ly, 128, cut), stack) for ly in (block, look)]
    assert kept[0] == kept[1]
