"""A Transformer with absolute, shifted or relative positions as a CTranslate2 model.

The layers are converted by CTranslate2's own functions for fairseq; its converter as a whole
knows neither relative positions nor encoders and decoders that differ.
"""

import json
import shutil
import tempfile
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.models import build_model

from ..errors import UserError
from ..files import atomic_directory, sha256
from ..text import bpe
from .translate import FORMAT, SETTINGS_FILE, import_ctranslate2

# What exists in fairseq's Transformer and not in CTranslate2's.
UNSUPPORTED = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "base_layers",
    "char_inputs",
    "cross_self_attention",
    "decoder_xformers_att_config",
    "encoder_xformers_att_config",
    "merge_src_tgt_embed",
    "no_cross_attention",
    "quant_noise_scalar",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_accurate": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "swish": "SWISH",
}
# Log probabilities of CTranslate2 and fairseq differ by rounding; a wrong layout by far more.
TOLERANCE = 1e-3


def check_supported(options: Namespace, kind: str) -> None:
    """Refuse what CTranslate2 would compute differently, before any work is done."""
    refused = [name for name in UNSUPPORTED if getattr(options, name, None)]
    if kind != "rpe" and getattr(options, "no_token_positional_embeddings", False):
        refused.append("no_token_positional_embeddings")
    if refused:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        raise UserError(f"CTranslate2 cannot do what the model was trained with: {names}")
    activation = getattr(options, "activation_fn", None) or "relu"
    if activation not in ACTIVATIONS:
        raise UserError(
            f"CTranslate2 cannot do what the model was trained with: --activation-fn {activation}"
            f" (it can: {', '.join(ACTIVATIONS)})"
        )


def languages(options: Namespace, args: Namespace, data: Path) -> tuple[str, str]:
    """Source and target language: as asked for, as in the training, or as the data-bin says."""
    source = args.source_lang or getattr(options, "source_lang", None)
    target = args.target_lang or getattr(options, "target_lang", None)
    if not (source and target):
        found = infer_language_pair(str(data)) if data.is_dir() else (None, None)
        source, target = source or found[0], target or found[1]
    if not (source and target):
        raise UserError("the languages are unknown: give --source-lang and --target-lang")
    return source, target


def first_existing(what: str, option: str, *candidates: Path) -> Path:
    """The first of some paths that is there."""
    for path in candidates:
        if path.is_file():
            return path
    tried = " and ".join(map(str, candidates))
    raise UserError(f"no {what} found ({tried} missing): give {option}")


def build(checkpoint, dictionaries: list[Dictionary]) -> torch.nn.Module:
    """The model of a checkpoint as fairseq builds it, ready to translate, in fp32."""
    source, target = dictionaries
    rows = {
        name: len(checkpoint.weights[f"{name}.embed_tokens.weight"])
        for name in ("encoder", "decoder")
    }
    if (rows["encoder"], rows["decoder"]) != (len(source), len(target)):
        raise UserError(
            f"the model has {rows['encoder']} source and {rows['decoder']} target symbols, the"
            f" dictionaries have {len(source)} and {len(target)}: give the --data of its training"
        )
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    model = build_model(checkpoint.options, task)
    model.load_state_dict(checkpoint.weights, strict=True, model_cfg=checkpoint.options)
    return model.float().eval()


def set_side(spec, module, set_layer, embeddings) -> None:
    """Fill the specification of an encoder or a decoder."""
    convert = import_module("ctranslate2.converters.fairseq")
    convert.set_embeddings(embeddings, module.embed_tokens)
    spec.scale_embeddings = module.embed_scale
    if hasattr(spec, "position_encodings"):
        convert.set_position_encodings(spec.position_encodings, module.embed_positions)
    if module.layer_norm is not None:
        convert.set_layer_norm(spec.layer_norm, module.layer_norm)
    if module.layernorm_embedding is not None:
        convert.set_layer_norm(spec.layernorm_embedding, module.layernorm_embedding)
    for layer_spec, layer in zip(spec.layer, module.layers, strict=True):
        set_layer(layer_spec, layer)
        if hasattr(layer_spec.self_attention, "relative_position_keys"):
            # Both sides keep the row of distance j - i at j - i + L.
            attention = layer.self_attn
            layer_spec.self_attention.relative_position_keys = attention.relative_keys.numpy()
            layer_spec.self_attention.relative_position_values = attention.relative_values.numpy()


@torch.no_grad()
def specification(model: torch.nn.Module, options: Namespace, kind: str, symbols: list[list[str]]):
    """The model as CTranslate2 describes it."""
    convert = import_module("ctranslate2.converters.fairseq")
    specs = import_module("ctranslate2.specs.transformer_spec")
    activations = import_module("ctranslate2.specs.common_spec").Activation
    encoder, decoder = model.encoder, model.decoder
    common = {
        "relative_position": kind == "rpe",
        "activation": activations[ACTIVATIONS[getattr(options, "activation_fn", None) or "relu"]],
    }

    def shape_of(module, side: str) -> dict:
        pre_norm = bool(getattr(options, f"{side}_normalize_before", False))
        return {
            "num_layers": len(module.layers),
            "num_heads": getattr(options, f"{side}_attention_heads"),
            "pre_norm": pre_norm,
            "no_final_norm": pre_norm and module.layer_norm is None,
            "layernorm_embedding": module.layernorm_embedding is not None,
        }

    projected = decoder.project_in_dim is not None
    if projected != (decoder.project_out_dim is not None):
        raise UserError("CTranslate2 cannot project the decoder's input or output alone")
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(**shape_of(encoder, "encoder"), **common),
        specs.TransformerDecoderSpec(
            **shape_of(decoder, "decoder"), **common, project_in_out=projected
        ),
    )
    set_side(spec.encoder, encoder, convert.set_transformer_encoder_layer, *spec.encoder.embeddings)
    set_side(spec.decoder, decoder, convert.set_transformer_decoder_layer, spec.decoder.embeddings)
    convert.set_linear(spec.decoder.projection, decoder.output_projection)
    if projected:
        convert.set_linear(spec.decoder.project_in, decoder.project_in_dim)
        convert.set_linear(spec.decoder.project_out, decoder.project_out_dim)
    spec.register_source_vocabulary(symbols[0])
    spec.register_target_vocabulary(symbols[1])
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.eos_token  # fairseq starts with </s>
    return spec


def save(spec, folder: Path, quantization: str | None = None) -> None:
    """Write model.bin, its configuration and its vocabularies."""
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


@torch.no_grad()
def fairseq_scores(model: torch.nn.Module, source: torch.Tensor, target: torch.Tensor):
    """The log probability of each target token and of the end, as fairseq computes it."""
    end = torch.tensor([2])
    encoder_input = torch.cat([source, end])[None]  # 1 x source length
    previous = torch.cat([end, target])[None]  # 1 x target length
    logits, _ = model(encoder_input, torch.tensor([encoder_input.size(1)]), previous)
    wanted = torch.cat([target, end])[None, :, None]
    return logits.float().log_softmax(-1).gather(2, wanted)[0, :, 0]


def check_same_scores(model: torch.nn.Module, spec, symbols: list[list[str]]) -> None:
    """Let both translate the same made-up sentences: what is served must be what was trained."""
    ctranslate2 = import_ctranslate2()
    generator = torch.Generator().manual_seed(1)
    lengths = [2, min(50, model.max_positions()[0] - 1)]  # 50: beyond usual relative distances
    with tempfile.TemporaryDirectory() as folder:
        save(spec, Path(folder))
        translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=1)
        for length in lengths:
            source, target = (
                torch.randint(3, len(words), (length,), generator=generator) for words in symbols
            )
            expected = fairseq_scores(model, source, target)
            tokens = [
                [words[index] for index in side]
                for words, side in zip(symbols, (source, target), strict=True)
            ]
            (scored,) = translator.score_batch([tokens[0]], [tokens[1]])
            difference = (torch.tensor(scored.log_probs) - expected).abs().max().item()
            if not difference < TOLERANCE * max(1.0, expected.abs().max().item()):
                raise UserError(
                    f"CTranslate2 computes other probabilities than fairseq (by {difference:.2g}):"
                    " the model has a setting that was not recognized; nothing is exported"
                )


def export(checkpoint, output: Path, args: Namespace) -> None:
    """Write a CTranslate2 model with its vocabularies, BPE codes and settings."""
    ctranslate2 = import_ctranslate2()
    types = import_module("ctranslate2.specs.model_spec").ACCEPTED_MODEL_TYPES
    if args.quantization is not None and args.quantization not in types:
        raise UserError(f"unknown quantization '{args.quantization}': choose {', '.join(types)}")
    if args.beam < 1 or args.max_len_a < 0 or args.max_len_b < 1:
        raise UserError("--beam and --max-len-b must be at least 1, --max-len-a at least 0")
    options = checkpoint.options
    check_supported(options, checkpoint.kind)
    data = args.data or Path(str(getattr(options, "data", "")).split(":")[0])
    langs = languages(options, args, data)
    paths = [
        first_existing("dictionary", "--data", data / f"dict.{lang}.txt", data / "dict.txt")
        for lang in langs
    ]
    codes = args.codes or first_existing(
        "BPE codes", "--codes", data / "bpe" / "codes", data.parent / "bpe" / "codes"
    )
    bpe.check_codes(codes)
    dictionaries = [Dictionary.load(str(path)) for path in paths]
    symbols = [dictionary.symbols for dictionary in dictionaries]
    model = build(checkpoint, dictionaries)
    check_same_scores(model, specification(model, options, checkpoint.kind, symbols), symbols)
    max_source, max_target = model.max_positions()
    with atomic_directory(output) as folder:
        spec = specification(model, options, checkpoint.kind, symbols)
        save(spec, folder, args.quantization)
        shutil.copyfile(codes, folder / "codes")
        settings = {
            "format": FORMAT,
            "model": checkpoint.kind,
            "source_lang": langs[0],
            "target_lang": langs[1],
            "max_source_positions": max_source,
            "max_target_positions": max_target,
            "quantization": args.quantization or "float32",
            "search": {
                "beam": args.beam,
                "lenpen": args.lenpen,
                "max_len_a": args.max_len_a,
                "max_len_b": args.max_len_b,
            },
            "files": {path.name: sha256(path) for path in sorted(folder.iterdir())},
            "signature": checkpoint.signature() | {"ctranslate2": ctranslate2.__version__},
        }
        text = json.dumps(settings, indent=1)
        (folder / SETTINGS_FILE).write_text(f"{text}\n", encoding="utf-8")
