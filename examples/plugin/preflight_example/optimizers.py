"""An optimizer of this package: SGD with momentum whose update is the sign of the momentum.

It keeps one copy of each parameter. Its loop makes the sign of one parameter's momentum, and frees it before the next.
"""

from preflight.api import Copies, Optimizer

OPTIMIZERS = (Optimizer("example-signum", Copies(states=1, foreach=1, loop=1), spellings=("examplesignum",)),)
