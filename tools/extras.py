"""Print the requirements of some extras of pyproject.toml, one a line, for `pip install -r`.

`pip install '.[extra]'` would build the extension again; this installs only what is missing.
"""

import sys
import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra in sys.argv[1:]:
        print(*project["optional-dependencies"][extra], sep="\n")
