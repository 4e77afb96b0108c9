"""Children of this process, for tests of what fork() leaves them."""

import os
import time
import traceback
from typing import Callable


def code_of_child(work: Callable[[], None], seconds: float) -> int:
    """The exit code of a child that does `work`: 0, 1 where it raised (its traceback is printed), -9 where it took longer."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(status[1])
