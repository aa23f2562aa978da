import sys
from pathlib import Path

# The harness lies beside the tests.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))
