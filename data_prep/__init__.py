"""From public raw text to the three dataset settings of the paper; see README.md here."""
