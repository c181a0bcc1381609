"""Packaging of shape-fairseq; `make setup` makes an environment, `make release` the packages."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import find_packages, setup

if sys.version_info < (3, 10):
    sys.exit("shape-fairseq needs Python 3.10 or newer, this is %d.%d" % sys.version_info[:2])

# fairseq-fixed, which has no ready-made package but for 3.12, imports torch while it is built;
# fairseq 0.12.2 must not find it then. In pip's isolated environment both are as they should be;
# told not to isolate, pip ends in a traceback of fairseq.
if (
    "PIP_BUILD_TRACKER" in os.environ
    and not any("pip-build-env" in path for path in sys.path)
    and not find_spec("fairseq")
):
    if sys.version_info[:2] == (3, 10) and find_spec("torch"):
        sys.exit(
            "shape-fairseq: on Python 3.10 fairseq does not build where it finds torch:\n"
            "    pip install shape-fairseq    (or . in a clone), without --no-build-isolation"
        )
    if sys.version_info[:2] not in ((3, 10), (3, 12)) and not find_spec("torch"):
        sys.exit(
            "shape-fairseq: fairseq is built here and needs torch first:\n"
            "    pip install torch cython numpy setuptools wheel\n"
            "    pip install --no-build-isolation shape-fairseq    (or . in a clone)"
        )

setup(
    name="shape-fairseq",
    version="0.1.0",
    description="Position representations for fairseq Transformers: SHAPE, relative and others",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="MIT",
    license_files=["LICENSE"],
    project_urls={
        "Paper": "https://aclanthology.org/2021.emnlp-main.266",
        "fairseq": "https://github.com/facebookresearch/fairseq",
    },
    keywords="fairseq transformer translation position-embedding relative-position SHAPE NMT",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["shape_fairseq*"]),
    package_data={"shape_fairseq": ["py.typed", "analysis/*.css", "analysis/*.j2"]},
    python_requires=">=3.10",
    install_requires=[
        # The official release does not import on Python 3.11 (mutable dataclass defaults); the
        # fixed one is the same module, `fairseq`, for 3.11 and newer.
        "fairseq==0.12.2; python_version < '3.11'",
        "fairseq-fixed==0.12.3.1; python_version >= '3.11'",
        # fairseq 0.12.2 uses names that numpy 1.24 removed.
        "numpy<1.24; python_version < '3.11'",
        "numpy>=1.23; python_version >= '3.11'",
        # Older ones run the code of a malicious checkpoint.
        "torch>=2.6",
        "sacrebleu>=2.2",
        "sacremoses>=0.0.53",
        "jinja2",
        "tqdm",
        "tomli; python_version < '3.11'",
    ],
    extras_require={
        "cluster": ["submitit>=1.5"],
        "analysis": ["matplotlib", "tensorboardX"],
        "ctranslate2": ["ctranslate2>=4.0"],
        "triton": ["triton>=3.3; sys_platform == 'linux'"],
        # Applies BPE in C++. On Python 3.11 and newer it only builds after `pip install cython`,
        # with --no-build-isolation; without it our own engine gives the same subwords.
        "fastbpe": ["fastBPE>=0.1.0"],
        "dev": [
            "hypothesis",
            "mypy",
            "pytest",
            "pytest-xdist",
            "ruff",
            "submitit>=1.5",
            "subword-nmt>=0.3.8",
            "triton>=3.3; sys_platform == 'linux'",  # its interpreter and compiler need no GPU
        ],
        "release": ["build", "twine"],
    },
    entry_points={"console_scripts": ["shape-fairseq = shape_fairseq.__main__:main"]},
)
