"""Position representations for the Transformer of fairseq.

fairseq-train --user-dir shape_fairseq loads the models by itself. In Python `import
shape_fairseq.models` does; `import shape_fairseq` alone imports nothing, and fairseq would then
take a --user-dir of this name as loaded already.
"""
