"""Loss and gradients of Troupe's Llama against Hugging Face transformers' with the same weights, in fp32.

    parity_transformers.py PATH/TO/model_parity_dump

Per parameter: |g - ref| <= 1e-5 |ref| in the 2-norm; losses equal to 1e-6. Exit code 0: all do.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

HEADS, KV_HEADS, DIM, FFN, LAYERS, VOCAB = 4, 2, 64, 160, 3, 96
PROJECTIONS = {
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WHOLE = {"tok_embeddings.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def name_there(name: str) -> str:
    """Torchtitan's name of a parameter in transformers."""
    if name in WHOLE:
        return WHOLE[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{PROJECTIONS[rest.removesuffix('.weight')]}.weight"


def half_split(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Rows of wq and wk from rotary pairs (2i, 2i+1) to pairs (i, i + d/2)."""
    heads = HEADS if "attention.wq" in name else KV_HEADS if "attention.wk" in name else 0
    if not heads:
        return tensor
    pairs = tensor.view(heads, tensor.shape[0] // heads // 2, 2, tensor.shape[1])
    return pairs.transpose(1, 2).reshape(tensor.shape)


def reference(which: str) -> LlamaForCausalLM:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=scaling if which == "scaled" else None, tie_word_embeddings=which == "tied",
        max_position_embeddings=512, attn_implementation="eager")
    return LlamaForCausalLM(config).to(torch.float32)


def compare(which: str, dump: Path) -> bool:
    ours = load_file(dump)
    model = reference(which)
    there = dict(model.named_parameters())
    names = [key.removeprefix("weight.") for key in ours if key.startswith("weight.")]
    assert {name_there(name) for name in names} == set(there), "the two models have different parameters"
    with torch.no_grad():
        for name in names:
            there[name_there(name)].copy_(half_split(name, ours["weight." + name]))
    logits = model(ours["tokens"].long()).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ours["labels"].long().flatten(), ignore_index=-100)
    loss.backward()
    difference = abs(loss.item() - ours["loss"].item())
    good = difference <= 1e-6 * abs(loss.item())
    worst, worst_name = 0.0, ""
    square = 0.0
    for name in names:
        expected = there[name_there(name)].grad.double()
        error = ((half_split(name, ours["gradient." + name]).double() - expected).norm() / expected.norm()).item()
        square += expected.square().sum().item()
        if error > 1e-5:
            print(f"{which}: gradient of {name} is off by {error:.2e} of its norm")
            good = False
        if error > worst:
            worst, worst_name = error, name
    norm_error = abs(ours["grad_norm"].item() / square**0.5 - 1)
    good = good and norm_error <= 1e-5
    print(f"{which}: loss {ours['loss'].item():.7f}, transformers {loss.item():.7f}; {len(names)} gradients, worst {worst:.1e} ({worst_name}); norm {norm_error:.1e}")
    return good


def main() -> int:
    torch.manual_seed(0)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for which in ("plain", "tied", "scaled"):
            dump = Path(folder) / f"{which}.safetensors"
            subprocess.run([sys.argv[1], which, dump], check=True)
            good = compare(which, dump) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
