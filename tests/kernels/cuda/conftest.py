import sys
from pathlib import Path

# The emulator lies beside the tests, the reference evaluator above them.
for folder in (Path(__file__).parent, Path(__file__).parents[1]):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
