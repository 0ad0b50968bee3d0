"""Writes `peft/` with PEFT itself: adapters of a tiny Qwen3, and the hidden states that it makes with each.

    PYTHONPATH=tests python tests/golden/make_peft.py

in an environment with peft and transformers, which need not be the one of the tests: they make the base model anew.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from support.checkpoints import tiny_transformer
from support.references import EXACT

FOLDER = Path(__file__).with_name("peft")
IDS = [7, 40, 3, 200, 871, 12, 12, 5, 99]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "everything": {
        "r": 3,
        "lora_alpha": 2,
        "use_rslora": True,
        "target_modules": "all-linear",
        "rank_pattern": {"k_proj": 2},
        "alpha_pattern": {"layers.1.mlp.up_proj": 5},
        "modules_to_save": ["norm"],
    },
    "table": {"r": 2, "lora_alpha": 3, "target_modules": ["embed_tokens", "o_proj"]},
}


def main() -> None:
    """Write all of it."""
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        base = tiny_transformer("qwen3", Path(scratch) / "base")
        for number, (kind, says) in enumerate(KINDS.items()):
            model = get_peft_model(AutoModel.from_pretrained(base, **EXACT), LoraConfig(**says)).eval()
            source = torch.Generator().manual_seed(number)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_" in name or "modules_to_save" in name:
                        parameter.copy_(0.2 * torch.randn(parameter.shape, generator=source))
                rows[kind] = model(torch.tensor([IDS])).last_hidden_state[0].numpy()
            model.save_pretrained(FOLDER / kind, save_embedding_layers=False)
            (FOLDER / kind / "README.md").unlink()
            config = FOLDER / kind / "adapter_config.json"
            says = json.loads(config.read_text(encoding="utf-8")) | {"base_model_name_or_path": "base"}
            config.write_text(json.dumps(says, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            path = FOLDER / kind / "adapter_model.safetensors"
            save_file(load_file(path), path, metadata={"format": "pt"})
    np.savez(FOLDER / "rows.npz", ids=np.array(IDS), **rows)


if __name__ == "__main__":
    main()
