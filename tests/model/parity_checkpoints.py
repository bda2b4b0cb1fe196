"""Weights that go between Troupe, Hugging Face transformers, torch.distributed.checkpoint and torchtitan.

    parity_checkpoints.py PATH/TO/troupe PATH/TO/model_parity_inputs PATH/TO/model_parity_logits

1. A folder that transformers has saved gives the same logits here (fp32, KL of the next token's distribution at most 1e-6) and the same greedy text.
2. A run begins from it on three ranks; what the run writes with last_save_in_hf gives the same logits in transformers, `troupe convert` writes the same
   bytes, and torch.distributed.checkpoint reads both that folder and the sealed checkpoint itself.
3. Fp8 weights by blocks become what PyTorch dequantizes them to.
4. A checkpoint as torchtitan saves it is carried on by `troupe train`: the losses of the next 20 steps are those of torchtitan's model in a loop of this
   file's own, within 1e-5 in fp32 and 1e-3 in bf16.

Exit code 0: all of it holds.
"""

import filecmp
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

import parity_training as training

BEFORE, AFTER = 5, 20  # steps there, and here
MODEL = {"vocab_size": 272, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 256, "bos_token_id": 256, "eos_token_id": None}
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
SECTION = """
[model]
dim = 64
n_layers = 3
n_heads = 4
n_kv_heads = 2
ffn_hidden = 192
vocab_size = 272
rope_theta = 500000.0
"""
# A run that begins with the weights of a folder of Hugging Face and writes such a one at its end.
FROM_THERE = """
[job]
dump_folder = "{run}"
[training]
local_batch_size = {rows}
seq_len = 32
steps = {steps}
mixed_precision_param = "float32"
dataset = "text"
dataset_path = ["{text}"]
[checkpoint]
enable = true
initial_load_path = "{there}"
initial_load_in_hf = true
last_save_in_hf = true
"""
IDS = [256, *b"the quick brown fox jumps over a lazy dog and so on"]


def call(*command) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Test:
    def __init__(self, troupe: str, inputs: str, logits: str, folder: Path):
        self.troupe, self.inputs, self.logits, self.folder, self.good = troupe, inputs, logits, folder, True

    def expect(self, holds: bool, what: str) -> None:
        self.good = self.good and bool(holds)
        print(f"{'ok   ' if holds else 'WRONG'} {what}", flush=True)

    def same_logits(self, folder: Path, model: LlamaForCausalLM, what: str) -> None:
        out = self.folder / "logits.safetensors"
        call(self.logits, folder, out, *IDS)
        ours = torch.log_softmax(load_file(out)["logits"], -1)
        with torch.no_grad():
            theirs = torch.log_softmax(model(torch.tensor([IDS])).logits[0].double(), -1)
        divergence = (theirs.exp() * (theirs - ours)).sum(-1).max().item()
        self.expect(divergence <= 1e-6, f"{what}: the largest divergence of a next token is {divergence:.1e}")

    def hugging_face(self, which: str) -> None:
        torch.manual_seed({"plain": 1, "tied": 2, "scaled": 3}[which])
        config = LlamaConfig(**MODEL, tie_word_embeddings=which == "tied", rope_scaling=SCALING if which == "scaled" else None, initializer_range=0.2)
        model = LlamaForCausalLM(config).eval()
        there = self.folder / f"hf-{which}"
        model.save_pretrained(there, max_shard_size="1GB" if which == "tied" else "100KB")
        (there / "special_tokens_map.json").write_text("{}")  # tokens are bytes here; what goes with a tokenizer is copied
        self.same_logits(there, model, f"{which}: transformers' folder, read here")
        with torch.no_grad():
            theirs = model.generate(torch.tensor([IDS]), do_sample=False, max_new_tokens=40)[0].tolist()
        text = call(self.troupe, "generate", there, "--ids", ",".join(map(str, IDS)), "--tokens", 40)
        self.expect([int(i) for i in text.split(",")] == theirs, f"{which}: the same 40 greedy tokens")
        self.round_trip(which, there, model)

    def round_trip(self, which: str, there: Path, model: LlamaForCausalLM) -> None:
        run, steps = self.folder / f"run-{which}", 3
        config = self.folder / f"{which}.toml"
        section = SECTION + ("tied_embeddings = true\n" if which == "tied" else "")
        if which == "scaled":
            section += "rope_scaling_factor = 8.0\nrope_scaling_original_length = 32\n"
        config.write_text(section + FROM_THERE.format(there=there, run=run, text=self.folder / "text.txt", rows=2, steps=steps))
        call(self.troupe, "train", config, "--nproc", 3)
        written, sealed = run / f"checkpoint/step-{steps}-hf", run / f"checkpoint/step-{steps}"
        trained, problems = LlamaForCausalLM.from_pretrained(written, output_loading_info=True, torch_dtype=torch.float32)
        self.expect(not any(problems.values()), f"{which}: transformers loads every tensor of the run's last save, and no other")
        self.same_logits(sealed, trained.eval(), f"{which}: the run's last save, read by transformers")
        before, after = model.state_dict(), trained.state_dict()
        moved = max((after[name] - before[name]).abs().max().item() for name in before)
        self.expect(0 < moved < 0.05, f"{which}: the run began at the folder's weights and moved them by {moved:.1e}")
        again = self.folder / f"again-{which}"
        call(self.troupe, "convert", sealed, "--to", "hf", again)
        same = filecmp.cmpfiles(written, again, [file.name for file in written.iterdir()], shallow=False)
        self.expect(same[0] and not same[1] and not same[2], f"{which}: troupe convert writes the same {len(same[0])} files")
        self.expect((again / "special_tokens_map.json").exists(), f"{which}: the tokenizer is copied")
        weights = {name: torch.zeros_like(value) for name, value in load_file(written / "model.safetensors").items()}
        dcp.load(weights, storage_reader=HuggingFaceStorageReader(str(written)))
        self.expect(all(torch.equal(value, after[name]) for name, value in weights.items()), f"{which}: torch.distributed.checkpoint loads the folder")
        whole = {"tok_embeddings.weight": torch.zeros(272, 64), "layers.2.attention.wv.weight": torch.zeros(32, 64)}
        dcp.load(whole, storage_reader=HuggingFaceStorageReader(str(sealed)))
        good = torch.equal(whole["tok_embeddings.weight"], after["model.embed_tokens.weight"])
        good = good and torch.equal(whole["layers.2.attention.wv.weight"], after["model.layers.2.self_attn.v_proj.weight"])
        self.expect(good, f"{which}: torch.distributed.checkpoint loads the sealed checkpoint of three ranks")

    def quantized(self) -> None:
        """Weights in fp8 by blocks of 24 × 40, which divide nothing; PyTorch quantizes and dequantizes them."""
        torch.manual_seed(4)
        config = LlamaConfig(**MODEL, initializer_range=0.2)
        model = LlamaForCausalLM(config).eval()
        rows, columns, stored, expected = 24, 40, {}, {}
        for name, weight in model.state_dict().items():
            stored[name] = expected[name] = weight
            if "proj" not in name:
                continue
            down, across = (torch.arange(size) // block for size, block in zip(weight.shape, (rows, columns)))
            scales = torch.stack([torch.stack([weight[down == i][:, across == j].abs().max() / 448 for j in range(int(across[-1]) + 1)]) for i in range(int(down[-1]) + 1)])
            by_element = scales[down][:, across]
            stored[name] = (weight / by_element).to(torch.float8_e4m3fn)
            stored[name + "_scale_inv"] = scales
            expected[name] = stored[name].float() * by_element
        there = self.folder / "hf-fp8"
        there.mkdir()
        save_file(stored, there / "model.safetensors")
        how = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [rows, columns]}
        (there / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": ["LlamaForCausalLM"], "quantization_config": how}))
        model.load_state_dict(expected)
        self.same_logits(there, model, "fp8 by blocks, read here")
        run, file = self.folder / "run-fp8", self.folder / "fp8.toml"
        file.write_text(SECTION + FROM_THERE.format(there=there, run=run, text=self.folder / "text.txt", rows=1, steps=1))
        call(self.troupe, "train", file, "--nproc", 3, "--optimizer.lr", 0.0, "--checkpoint.initial_load_in_hf_quantized")
        written = load_file(run / "checkpoint/step-1-hf/model.safetensors")
        self.expect(all(torch.equal(value, expected[name]) for name, value in written.items()) and len(written) == len(expected),
                    "fp8 by blocks: three ranks begin with PyTorch's dequantized weights, bit for bit")

    def torchtitan(self, bf16: bool) -> None:
        """Five steps there, saved as torchtitan's CheckpointManager does, and 20 more both there and here."""
        total = BEFORE + AFTER
        case = training.Case([], bf16=bf16, schedule={"total": total})
        config = self.folder / "titan.toml"
        shape = "\n".join(f"{name} = {value}" for name, value in training.SHAPE.items())
        config.write_text(training.CONFIG.format(folder=self.folder, shape=shape, vocabulary=training.VOCABULARY, lr=training.LR, warmup=training.WARMUP,
                                                 rows=training.ROWS, seq=training.SEQ, steps=total))
        file = self.folder / "inputs.safetensors"
        call(self.inputs, config, training.ROWS, AFTER, file)
        there = training.Reference(case, load_file(file), training.Variant())
        for number in range(1, BEFORE + 1):
            there.step(number)
        folder = self.folder / f"titan-{bf16}/step-{BEFORE}"
        optimizer = get_optimizer_state_dict(there.model, there.optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
        dcp.save({**there.model.state_dict(), "optimizer": optimizer, "lr_scheduler": there.scheduler.state_dict(),
                  "train_state": {"step": torch.tensor(BEFORE, dtype=torch.int32), "ntokens_seen": torch.tensor(BEFORE * 128, dtype=torch.int64)}}, checkpoint_id=folder)
        theirs = [there.step(number)[0] for number in range(1, AFTER + 1)]
        told = call(self.troupe, "train", config, "--overwrite", "--nproc", 2, "--training.local_batch_size", training.ROWS // 2, "--checkpoint.enable",
             "--checkpoint.initial_load_path", folder.parent, "--checkpoint.no_initial_load_model_only",
             "--training.mixed_precision_param", "bfloat16" if bf16 else "float32")
        self.expect("The data begin at row 0" in told and "set checkpoint.initial_data_row = 5 ×" in told, "the start says where in the data it is")
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.expect([line["step"] for line in lines] == list(range(BEFORE + 1, total + 1)), "torchtitan's run is carried on at its next step")
        worst = max(abs(line["loss"] / loss - 1) for line, loss in zip(lines, theirs))
        self.expect(worst <= (1e-3 if bf16 else 1e-5), f"the next {AFTER} losses differ from torchtitan's model in {'bf16' if bf16 else 'fp32'} by {worst:.1e}")


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="troupe-checkpoints-") as name:
        folder = Path(name)
        training.Parity("", "", folder)  # writes text.txt
        test = Test(*sys.argv[1:], folder)
        for which in ("plain", "tied", "scaled"):
            test.hugging_face(which)
        test.quantized()
        for bf16 in (False, True):
            test.torchtitan(bf16)
    return 0 if test.good else 1


if __name__ == "__main__":
    sys.exit(main())
