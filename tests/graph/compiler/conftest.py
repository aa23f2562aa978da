import sys
from pathlib import Path

# What tests of pictures share lies beside this file.
if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))
