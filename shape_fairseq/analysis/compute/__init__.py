"""What runs models, and so needs torch and fairseq: imported when an analysis starts."""
