"""Raw text to subwords and back; needs neither torch nor fairseq."""
