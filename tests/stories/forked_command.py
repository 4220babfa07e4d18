"""A command of ours that a shell starts: asks the fork server for a fork of itself, and ends as that one does.

`fork_server.put_commands` writes the scripts that start it. It imports little, since tests start it hundreds of
times: starting an interpreter is most of what it costs.
"""

import os
import sys
from _signal import SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGTERM, getsignal, signal
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from marshal import dumps

_, address, script, *arguments = sys.argv
server = socket(AF_UNIX, SOCK_SEQPACKET)
server.connect(b"\0" + address.encode())
umask = os.umask(0o077)
os.umask(umask)
request = {
    "words": [script, *arguments],
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "umask": umask,
    "is_leader": False,
    "numbers": [0, 1, 2],
}
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([dumps(request)], [(SOL_SOCKET, SCM_RIGHTS, streams)])
if not (answer := server.recv(64)):  # it needs an interpreter of its own: `can_fork` says when
    os.execv(script, [script, *arguments])
fork = int(answer)
for number in (SIGHUP, SIGINT, SIGTERM):
    if getsignal(number) != SIG_IGN:  # a shell ignores Ctrl-C for what it starts in the background
        signal(number, lambda signalled, _: os.kill(fork, signalled))
status = int(server.recv(64))
if status < 0:
    signal(-status, SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
