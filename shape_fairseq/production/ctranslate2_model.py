"""All position representations as CTranslate2 models.

The layers are converted by CTranslate2's own functions for fairseq; its converter as a whole knows
neither relative positions nor encoders and decoders that differ. What its engine can do beyond its
converters is used: rotary positions, and T5's table of biases for any bias of distances.
"""

import logging
import shutil
import tempfile
from argparse import Namespace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.models import build_model

from .. import records
from ..checkpoints import no_larger_than
from ..compat import refusals
from ..data_folder import DICTIONARY, PARAMETERS, data_hash
from ..errors import UserError
from ..evaluation.training_folder import RECIPE, read_recipe
from ..files import atomic_directory, sha256
from ..models.relative_positions import RelativePositionsModel
from ..modules.biased_attention import BiasedSelfAttention
from ..modules.relative_attention import RelativeMultiheadAttention
from ..modules.rotary_attention import RotarySelfAttention
from ..search import Search
from ..text import bpe
from .settings import CODES, SETTINGS_FILE, Settings, check_search
from .trained import Checkpoint
from .translate import import_ctranslate2

log = logging.getLogger(__name__)

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


def check_supported(options: Namespace, model_class: type) -> None:
    """Refuse what CTranslate2 would compute differently, before any work is done."""
    refused = [name for name in UNSUPPORTED if getattr(options, name, None)]
    positions = not issubclass(model_class, RelativePositionsModel)
    if positions and getattr(options, "no_token_positional_embeddings", False):
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


def languages(checkpoint: Checkpoint, args: Namespace, data: Path) -> tuple[str, str]:
    """Source and target language: as asked for, as in the training, or as the data-bin says."""
    source = args.source_lang or getattr(checkpoint.options, "source_lang", None)
    target = args.target_lang or getattr(checkpoint.options, "target_lang", None)
    for folder in (data, training_data(checkpoint)):
        if not (source and target) and folder.is_dir():
            inferred = infer_language_pair(str(folder))
            source, target = source or inferred[0], target or inferred[1]
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


def check_dictionaries(checkpoint: Checkpoint, data: Path, paths: dict[str, Path]) -> None:
    """Refuse dictionaries other than those of the training: symbols in another order are nonsense.

    A recipe keeps a hash of its data beside the checkpoint. Without it the dictionaries of the
    training's folder tell, where that is still there.
    """
    here, there = data.absolute(), training_data(checkpoint).absolute()
    folders = [f for f in (here, here.parent) if (f / PARAMETERS).is_file()]
    if (checkpoint.path.parent / RECIPE).is_file() and folders:
        recipe = read_recipe(checkpoint.path.parent)
        same = recipe.data_hash == data_hash(folders[0])
        if same and all(
            symbols_of(path) == symbols_of(folders[0] / DICTIONARY) for path in paths.values()
        ):
            return
        raise UserError(
            f"{checkpoint.path} was trained on other data than {data}: give the --data of its"
            " training"
        )
    if here == there:
        return
    for lang, path in paths.items():
        originals = (there / f"dict.{lang}.txt", there / DICTIONARY)
        original = next((file for file in originals if file.is_file()), None)
        if original is None:
            log.warning(
                "not checked: whether %s is the dictionary of the training, as %s is not there",
                path,
                originals[0],
            )
        elif symbols_of(path) != symbols_of(original):
            raise UserError(
                f"{path} is not the dictionary of the training, {original}: give the --data of its"
                " training"
            )


def symbols_of(path: Path) -> list[str]:
    """The symbols of a dictionary in their order."""
    return Dictionary.load(str(path)).symbols


def training_data(checkpoint: Checkpoint) -> Path:
    """The data-bin that a model was trained on, wherever that is now."""
    return Path(str(getattr(checkpoint.options, "data", "")).split(":")[0])


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


def position_options(attention: torch.nn.Module) -> dict:
    """What CTranslate2's encoders and decoders must be told of a layer's self-attention."""
    if isinstance(attention, RelativeMultiheadAttention):
        return {"relative_position": True}
    if isinstance(attention, BiasedSelfAttention):
        return {"relative_attention_bias": True}
    if isinstance(attention, RotarySelfAttention):
        return {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": attention.base}
    return {}


def bias_table(attention: BiasedSelfAttention, positions: int) -> numpy.ndarray:
    """T5's table with a bucket of its own for each distance below `positions`: buckets x heads.

    Half of a side's buckets hold one distance each and are all that is ever used, as no sequence
    is longer than `positions`. Where the future is visible it has the later half of all buckets.
    """
    distances = torch.arange(2 * positions)
    sides = [-distances] if attention.causal else [-distances, distances]
    bias = attention.distance_bias
    table = torch.cat([bias.by_distance(side, torch.float32).t() for side in sides])
    return table.detach().numpy()


def set_positions(spec, module, positions: int) -> None:
    """Fill what `position_options` has announced."""
    first = module.layers[0].self_attn
    if isinstance(first, RotarySelfAttention) and hasattr(spec, "position_encodings"):
        del spec.position_encodings
    if hasattr(spec, "position_encodings"):
        convert = import_module("ctranslate2.converters.fairseq")
        convert.set_position_encodings(spec.position_encodings, module.embed_positions)
    table = bias_table(first, positions) if isinstance(first, BiasedSelfAttention) else None
    for layer_spec, layer in zip(spec.layer, module.layers, strict=True):
        attention, attention_spec = layer.self_attn, layer_spec.self_attention
        if isinstance(attention, RelativeMultiheadAttention):
            # Both sides keep the row of distance j - i at j - i + L.
            attention_spec.relative_position_keys = attention.relative_keys.numpy()
            attention_spec.relative_position_values = attention.relative_values.numpy()
        elif table is not None:
            attention_spec.relative_attention_bias = table
            attention_spec.relative_attention_max_distance = numpy.int32(2 * positions)


def set_side(spec, module, set_layer, embeddings, positions: int) -> None:
    """Fill the specification of an encoder or a decoder."""
    convert = import_module("ctranslate2.converters.fairseq")
    convert.set_embeddings(embeddings, module.embed_tokens)
    spec.scale_embeddings = module.embed_scale
    if module.layer_norm is not None:
        convert.set_layer_norm(spec.layer_norm, module.layer_norm)
    if module.layernorm_embedding is not None:
        convert.set_layer_norm(spec.layernorm_embedding, module.layernorm_embedding)
    for layer_spec, layer in zip(spec.layer, module.layers, strict=True):
        set_layer(layer_spec, layer)
    set_positions(spec, module, positions)


@torch.no_grad()
def specification(model: torch.nn.Module, options: Namespace, symbols: list[list[str]]):
    """The model as CTranslate2 describes it."""
    convert = import_module("ctranslate2.converters.fairseq")
    specs = import_module("ctranslate2.specs.transformer_spec")
    activations = import_module("ctranslate2.specs.common_spec").Activation
    encoder, decoder = model.encoder, model.decoder
    activation = activations[ACTIVATIONS[getattr(options, "activation_fn", None) or "relu"]]

    def shape_of(module, side: str) -> dict:
        pre_norm = bool(getattr(options, f"{side}_normalize_before", False))
        return {
            "num_layers": len(module.layers),
            "num_heads": getattr(options, f"{side}_attention_heads"),
            "pre_norm": pre_norm,
            "no_final_norm": pre_norm and module.layer_norm is None,
            "layernorm_embedding": module.layernorm_embedding is not None,
            "activation": activation,
            **position_options(module.layers[0].self_attn),
        }

    projected = decoder.project_in_dim is not None
    if projected != (decoder.project_out_dim is not None):
        raise UserError("CTranslate2 cannot project the decoder's input or output alone")
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(**shape_of(encoder, "encoder")),
        specs.TransformerDecoderSpec(**shape_of(decoder, "decoder"), project_in_out=projected),
    )
    max_source, max_target = model.max_positions()
    set_encoder_layer = convert.set_transformer_encoder_layer
    set_decoder_layer = convert.set_transformer_decoder_layer
    set_side(spec.encoder, encoder, set_encoder_layer, spec.encoder.embeddings[0], max_source)
    set_side(spec.decoder, decoder, set_decoder_layer, spec.decoder.embeddings, max_target)
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
    longest = min(model.max_positions()) - 1
    lengths = [2, min(50, longest), min(300, longest)]  # 300: beyond usual relative distances
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


def export(checkpoint: Checkpoint, output: Path, args: Namespace) -> None:
    """Write a CTranslate2 model with its vocabularies, BPE codes and settings."""
    ctranslate2 = import_ctranslate2()
    types = import_module("ctranslate2.specs.model_spec").ACCEPTED_MODEL_TYPES
    if args.quantization is not None and args.quantization not in types:
        raise UserError(f"unknown quantization '{args.quantization}': choose {', '.join(types)}")
    search = Search.from_options(args)
    check_search(search)
    with refusals(str(checkpoint.path)):
        check_supported(checkpoint.options, checkpoint.model_class)
        data = args.data or training_data(checkpoint)
        langs = languages(checkpoint, args, data)
        paths = {
            lang: first_existing(
                "dictionary", "--data", data / f"dict.{lang}.txt", data / DICTIONARY
            )
            for lang in langs
        }
        codes = None if args.tokens else args.codes or find_codes(data)
        if codes is not None:
            bpe.check_codes(codes)
        check_dictionaries(checkpoint, data, paths)
        dictionaries = [Dictionary.load(str(paths[lang])) for lang in langs]
        symbols = [dictionary.symbols for dictionary in dictionaries]
        with no_larger_than(checkpoint.path):
            model = build(checkpoint, dictionaries)
        describe = partial(specification, model, checkpoint.options, symbols)
        check_same_scores(model, describe(), symbols)
        max_source, max_target = model.max_positions()
    with atomic_directory(output) as folder:
        save(describe(), folder, args.quantization)
        if codes is not None:
            shutil.copyfile(codes, folder / CODES)
        settings = Settings(
            model=checkpoint.model.name,
            source_lang=langs[0],
            target_lang=langs[1],
            max_source_positions=max_source,
            max_target_positions=max_target,
            quantization=args.quantization or "float32",
            search=search,
            files={path.name: sha256(path) for path in sorted(folder.iterdir())},
            signature=checkpoint.signature() | {"ctranslate2": ctranslate2.__version__},
            tokens=args.tokens,
        )
        (folder / SETTINGS_FILE).write_bytes(records.to_json(settings))


def find_codes(data: Path) -> Path:
    """The BPE codes of data_prep's folder, whether that or one of its data-bins was given."""
    candidates = [folder / "bpe" / "codes" for folder in (data, data.parent)]
    return first_existing("BPE codes", "--codes, or --tokens to do without", *candidates)
