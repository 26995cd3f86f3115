"""The command ``dsgp info``, its help and examples; `dsgp.cli.prediction` does the work."""

from __future__ import annotations

from dsgp.cli.options.shared import Model, StorageOption
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
INFO_EXAMPLES = """\b
Examples:
  dsgp info price.zarr
  dsgp info price.zarr > price.txt
"""


def info(model: Model, storage_option: StorageOption = None) -> None:
    """Print the kind of a saved model, its columns and its summary."""
    work_of("prediction", models=[model]).info(model, storage_option)
