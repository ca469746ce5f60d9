"""Writing that failed because there is no room, told apart from every other failure."""

import errno

_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_full(error: OSError) -> bool:
    """Whether the disk, a quota or a bound on the size of files is used up.

    Args:
        error: What was raised. `EFBIG` counts where it names no file, which is one that was open: a reader of ours
            raises it with the name of a file that is too large to be read.
    """
    return error.errno in _NO_ROOM or (error.errno == errno.EFBIG and error.filename is None)
