"""The program of the guardians of a command: see `process_guardian`.

It makes empty packages of the names of ours, because the packages themselves import much more than a guardian needs.
Their modules are loaded as usual, from compiled files.
"""

import os
import sys

for _name, _levels in (("gnomon", 2), ("gnomon.runners", 1)):
    _folder = os.path.abspath(__file__)  # noqa: PTH100 - pathlib takes longer to load than the rest
    for _ in range(_levels):
        _folder = os.path.dirname(_folder)  # noqa: PTH120
    _package = type(sys)(_name)
    _package.__path__ = [_folder]
    sys.modules[_name] = _package

from gnomon.runners.process_guardian import main  # noqa: E402 - it needs the packages

main()
