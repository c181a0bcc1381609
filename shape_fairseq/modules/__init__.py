"""Position representations as layers: the math as plain functions first, then the module."""
