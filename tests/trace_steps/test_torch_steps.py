"""PyTorch steps with one hazard each, and what a device that compiles would make of them.

The expectations are the measured behaviour of torch_xla 2.8 on PJRT CPU: which Python values
compile again when they change, which operations leave the device, one read an ``.item()``.
"""

import pytest

from .conftest import line_of

torch = pytest.importorskip("torch", reason="runs real PyTorch steps")

HEAD = """
import torch
def trace_inputs():
    for n in {sizes}:
        yield torch.ones(n, 4),
"""


def code(body: str, sizes: str = "(8, 8, 8)") -> str:
    return HEAD.format(sizes=sizes) + body


def test_a_step_of_fixed_shapes_is_one_program_without_a_stall(traced) -> None:
    result = traced(code("def step(x):\n    return (x * 2).relu().sum()\n"))
    assert (result.framework, result.steps, result.programs) == ("torch", 3, 1)
    assert not (result.recompiles or result.host_syncs or result.fallbacks or result.graph_breaks)


def test_each_new_input_shape_is_a_program(traced) -> None:
    text = code("def step(x):\n    return x.sum()\n", sizes="(8, 9, 8, 7)")
    result = traced(text)
    assert result.programs == 3  # lengths 8, 9, 7
    (recompile,) = result.recompiles
    assert recompile.count == 2
    assert recompile.cause == "an input's shape or type changed: float32(8, 4) to float32(9, 4)"
    assert recompile.place == ("user_step.py", line_of(text, "def step"))


def test_reading_a_value_is_a_stall_at_its_line(traced) -> None:
    text = code(
        "def step(x):\n"
        "    loss = x.sum()\n"
        "    a = loss.item()\n"
        "    b = float(loss)\n"
        "    c = loss.numpy()\n"
        "    d = x.tolist()\n"
        "    e = x.cpu()\n"
        "    f = f'{loss}'\n"
        "    return a\n"
    )
    result = traced(text)
    first = line_of(text, ".item()")
    expected = {(("user_step.py", line), 3) for line in range(first, first + 6)}
    assert {(tuple(place), count) for place, count in result.host_syncs} == expected
    assert result.programs == 1


def test_a_boolean_mask_leaves_the_device_and_its_size_is_the_datas(traced) -> None:
    text = """
import torch
def trace_inputs():
    for n in (1, 2, 3):
        x = torch.zeros(8)
        x[:n] = 1
        yield x,
def step(x):
    return x[x > 0].sum()
"""
    result = traced(text)
    (fallback,) = result.fallbacks
    assert fallback == (
        "aten::index with a boolean mask", ("user_step.py", line_of(text, "x[x > 0]")), 3
    )  # fmt: skip
    assert result.programs == 3
    (recompile,) = result.recompiles
    assert recompile.cause.startswith("a size that depends on data")
    assert (recompile.place.line, recompile.count) == (line_of(text, "x[x > 0]"), 2)


def test_a_branch_on_a_tensor_is_a_read_a_program_a_branch_and_a_graph_break(traced) -> None:
    text = """
import torch
def trace_inputs():
    for sign in (1, -1, 1, -1):
        yield torch.full((4,), float(sign)),
def step(x):
    if x.sum() > 0:
        return x * 2
    return x.exp()
"""
    result = traced(text)
    at = ("user_step.py", line_of(text, "if x.sum()"))
    assert result.host_syncs == ((at, 4),)
    assert result.programs == 2
    (recompile,) = result.recompiles
    assert (recompile.cause, recompile.place, recompile.count) == (
        "a value read from the device decides what runs", at, 1
    )  # fmt: skip
    (found,) = result.graph_breaks
    assert (found.place, found.why) == (at, "Python control flow on a tensor's value")


def test_a_python_index_is_baked_in_and_a_learning_rate_is_not(traced) -> None:
    text = """
import torch
weight = torch.ones(8, 4)
state = {{"i": 0}}
def trace_inputs():
    for _ in range(4):
        yield torch.ones(4),
def step(x):
    i = state["i"]
    state["i"] += 1
    {body}
"""
    result = traced(text.format(body="return x * (0.1 + i)").replace("{{", "{").replace("}}", "}"))
    assert result.programs == 1

    indexed = text.format(body="return weight[i] + x").replace("{{", "{").replace("}}", "}")
    result = traced(indexed)
    assert result.programs == 4
    (recompile,) = result.recompiles
    assert recompile.cause == (
        "a Python number became part of the program: index of aten::select, 0 to 1"
    )
    assert (recompile.place.line, recompile.count) == (line_of(indexed, "weight[i]"), 3)


def test_the_optimizers_first_step_is_a_program_of_its_own(traced) -> None:
    text = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
def trace_inputs():
    for _ in range(4):
        yield torch.ones(2, 4),
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
"""
    result = traced(text)
    assert result.programs == 2
    (recompile,) = result.recompiles
    assert recompile.cause.startswith("the optimizer made its state in the first step")
    assert recompile.place.line == line_of(text, "optimizer.step()")
    assert result.host_syncs == ()


def test_requests_for_cuda_are_served_by_the_cpu_and_said(traced) -> None:
    result = traced(
        code(
            "def step(x):\n"
            "    y = x.cuda() + torch.zeros(4, device='cuda')\n"
            "    return y.to('cuda:0').pin_memory()\n"
        )
    )
    assert result.programs == 1
    assert any("requests for a CUDA device were served by the CPU" in note for note in result.notes)


def test_a_generator_is_sent_each_result(traced) -> None:
    text = """
import torch
seen = []
def trace_inputs():
    state = torch.zeros(())
    for _ in range(3):
        state = yield state, torch.ones(2)
        seen.append(state.shape)
def step(state, x):
    return state + x.sum()
"""
    result = traced(text, steps=3)
    assert (result.steps, result.programs) == (3, 1)


def test_a_graph_break_names_its_line_and_reason(traced) -> None:
    text = code("def step(x):\n    y = x.sum()\n    print(y.item())\n    return y * 2\n")
    result = traced(text)
    assert result.graph_breaks
    found = result.graph_breaks[0]
    assert found.place == ("user_step.py", line_of(text, "print"))
    assert "item" in found.why


def test_a_model_that_is_made_on_cuda_when_the_module_is_imported_is_served_too(traced) -> None:
    result = traced(
        "import torch\n"
        "model = torch.nn.Linear(4, 4).cuda()\n"
        "def step():\n"
        "    return model(torch.ones(2, 4, device='cuda'))\n",
        steps=2,
    )
    assert (result.steps, result.programs) == (2, 1)


def test_a_move_to_the_cpu_is_a_read_and_a_move_to_the_device_is_not(traced) -> None:
    text = code(
        "device = 'cpu'\n"
        "def step(x):\n"
        "    x = x.to(device)\n"
        "    torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0)\n"
        "    return x.to('cpu')\n"
    )
    result = traced(text)
    assert result.host_syncs == ((("user_step.py", line_of(text, "x.to('cpu')")), 3),)
