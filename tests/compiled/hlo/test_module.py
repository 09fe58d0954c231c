"""Reading a program's text: what is no program, and whose line an instruction comes from."""

from __future__ import annotations

import pytest

from chipshift.compiled.hlo.module import parse


def test_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        parse("module @jit_step {}")


LIBRARY = "/env/lib/site-packages/transformers/models/llama/modeling_llama.py"


def test_a_library_of_models_is_named_with_its_class_where_no_file_of_the_users_is_met() -> None:
    # innermost first: torch (2), transformers (1), our own tracer (3)
    text = f"""HloModule jit_value

FileNames
1 "{LIBRARY}"
2 "/env/lib/site-packages/torch/nn/functional.py"
3 "/home/me/chipshift/compiled/torch_program.py"

FunctionNames
1 "LlamaMLP.forward"
2 "linear"
3 "trace.<locals>.value"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=164 end_line=164 column=1 end_column=9}}
2 {{file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=9}}
3 {{file_name_id=3 function_name_id=3 line=9 end_line=9 column=1 end_column=9}}

StackFrames
1 {{file_location_id=3 parent_frame_id=1}}
2 {{file_location_id=1 parent_frame_id=2}}
3 {{file_location_id=2 parent_frame_id=3}}

ENTRY %main (x: bf16[8]) -> bf16[8] {{
  %x = bf16[8]{{0}} parameter(0)
  %made = bf16[8]{{0}} copy(%x), metadata={{op_name="a" stack_frame_id=3}}
  ROOT %own = bf16[8]{{0}} copy(%made), metadata={{op_name="b" stack_frame_id=1}}
}}
"""
    module = parse(text)
    made, own = (module.computations["main"].by_name[name] for name in ("made", "own"))
    assert module.source(made) == (LIBRARY, 164)
    assert module.functions[LIBRARY, 164] == "LlamaMLP.forward"
    assert module.source(own) is None  # only the tracer's own line, which says nothing


def test_a_weight_that_a_layer_uses_by_name_is_at_the_layers_line() -> None:
    """``q, k, v = w.project_all(...)`` of the step, not the method that multiplies for all."""
    step = "/home/me/chipshift/compiled/step"
    text = f"""HloModule jit_train_step

FileNames
1 "{step}/model.py"
2 "{step}/sharding.py"

FunctionNames
1 "attention"
2 "Weights.project"
3 "project.<locals>.forward"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=105 end_line=105 column=1 end_column=9}}
2 {{file_name_id=1 function_name_id=2 line=75 end_line=75 column=1 end_column=9}}
3 {{file_name_id=2 function_name_id=3 line=150 end_line=150 column=1 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}
3 {{file_location_id=3 parent_frame_id=3}}

ENTRY %main (x: bf16[8]) -> bf16[8] {{
  %x = bf16[8]{{0}} parameter(0)
  ROOT %made = bf16[8]{{0}} copy(%x), metadata={{op_name="a" stack_frame_id=3}}
}}
"""
    module = parse(text)
    made = module.computations["main"].by_name["made"]
    assert module.source(made) == (f"{step}/model.py", 105)
