"""Everything this package raises on purpose.

MensError                     something a person can mend; shown as one message, never as a traceback
├── RefusedError              the work was done and its result is not good enough; exit code 1
├── ConfigurationError        a setting or configuration file does not hold together
└── SourceNotFoundError       a file or folder that was asked for is not there
"""


class MensError(Exception):
    """The base of the tree; its message says where, what was found, what was expected and what to do."""


class RefusedError(MensError):
    """The work was done, and its result is not good enough."""


class ConfigurationError(MensError):
    """A setting or a configuration file does not hold together."""


class SourceNotFoundError(MensError):
    """A file or folder that was asked for is not there."""
