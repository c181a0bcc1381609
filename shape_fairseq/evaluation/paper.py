"""The numbers that Kiyono et al. (2021) report, to stand beside ours."""

NEWSTESTS = tuple(f"newstest{year}" for year in range(2010, 2017))

# Table 1: BLEU of the first sentence in original and in swapped order, and the drop.
TABLE_1 = {"ape": (28.81, 20.74, 8.07), "shape": (28.51, 27.06, 1.45)}

# Table 2: BLEU on valid and test, and the speed relative to APE.
TABLE_2 = {
    ("vanilla", "ape"): (23.61, 30.46, 1.00),
    ("vanilla", "rpe"): (23.67, 30.54, 0.91),
    ("vanilla", "shape"): (23.63, 30.49, 1.01),
    ("extrapolate", "ape"): (22.18, 29.22, 1.00),
    ("extrapolate", "rpe"): (22.97, 29.86, 0.91),
    ("extrapolate", "shape"): (22.96, 29.80, 0.99),
    ("interpolate", "ape"): (31.40, 38.23, 1.00),
    ("interpolate", "shape"): (32.50, 39.09, 0.99),
}

# Section 3.3: SHAPE with the maximum shift 40, tuned on valid; its speed is not reported.
TUNED_MAX_SHIFT = {("extrapolate", "shape", 40): (23.12, 29.86, None)}

# Table 5: BLEU on newstest2010 to 2016, their macro average, and the relative speed.
TABLE_5 = {
    ("vanilla", "ape"): (24.22, 21.98, 22.20, 26.06, 26.95, 29.98, 34.46, 26.55, 1.00),
    ("vanilla", "rpe"): (24.29, 22.05, 22.22, 26.13, 27.00, 30.00, 34.61, 26.61, 0.91),
    ("vanilla", "shape"): (24.18, 22.01, 22.23, 26.08, 26.89, 30.12, 34.48, 26.57, 1.01),
    ("extrapolate", "ape"): (22.69, 20.36, 20.72, 24.94, 26.24, 28.79, 32.62, 25.19, 1.00),
    ("extrapolate", "rpe"): (23.46, 21.19, 21.69, 25.54, 26.80, 29.43, 33.34, 25.92, 0.91),
    ("extrapolate", "shape"): (23.60, 21.24, 21.53, 25.45, 26.54, 29.22, 33.63, 25.89, 0.99),
    ("interpolate", "ape"): (31.41, 29.71, 29.79, 34.69, 35.36, 38.00, 41.32, 34.33, 1.00),
    ("interpolate", "shape"): (32.71, 30.77, 30.96, 35.54, 35.72, 39.18, 42.37, 35.32, 0.99),
}

# Table 6: hardware, seconds for 200,000 updates, parameters.
TABLE_6 = {
    ("vanilla", "ape"): ("DGX-1", 97_073, "61M"),
    ("vanilla", "rpe"): ("DGX-1", 107_089, "61M"),
    ("vanilla", "shape"): ("DGX-1", 96_439, "61M"),
    ("extrapolate", "ape"): ("DGX-1", 101_469, "61M"),
    ("extrapolate", "rpe"): ("DGX-1", 111_246, "61M"),
    ("extrapolate", "shape"): ("DGX-1", 102_535, "61M"),
    ("interpolate", "ape"): ("DGX-2", 69_148, "61M"),
    ("interpolate", "shape"): ("DGX-2", 69_529, "61M"),
}
UPDATES = 200_000

# Table 7: APE on VANILLA, BLEU on newstest2010 to 2016 and their macro average.
TABLE_7 = {
    "fairseq": (24.24, 22.10, 22.40, 26.38, 27.11, 29.58, 34.34, 26.59),
    "OpenNMT-py": (24.22, 21.98, 22.20, 26.06, 26.95, 29.98, 34.46, 26.55),
}

# The averages of five seeds; all others are single runs.
SEEDS = {"vanilla": 5, "extrapolate": 1, "interpolate": 1}
