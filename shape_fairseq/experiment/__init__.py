"""Whole experiments: what they are, the jobs they are made of, and how these run."""
