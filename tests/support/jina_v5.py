"""jina-embeddings-v5, which transformers lacks: its makers' class of the small one is Qwen3's under another name."""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, Qwen3Config, Qwen3Model


class JinaV5Config(Qwen3Config):
    """The same."""

    model_type = "jina_embeddings_v5"


class JinaV5Model(Qwen3Model):
    """The same."""

    config_class = JinaV5Config
    config: JinaV5Config


AutoConfig.register("jina_embeddings_v5", JinaV5Config)
AutoModel.register(JinaV5Config, JinaV5Model)
