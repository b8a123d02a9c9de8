"""Programs that try to get out of a sandbox, each a text for Python that prints ``held`` or ``escaped``.

Each is given ``host``: what there is outside (see ``Outside`` in test_sandbox.py). A probe that could harm a machine
is bounded by itself. ``HARMLESS`` ones run without a sandbox too, where they must print ``escaped``.
"""

from __future__ import annotations

PRELUDE = """
import ctypes, errno, json, os, socket, sys
host = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def tell(escaped, why=""):
    print("escaped" if escaped else "held", why)
def attempt(what, *errors):
    try:
        found = what()
    except (errors or (OSError,)) as error:
        tell(False, repr(error))
    else:
        tell(True, repr(found))
def every(*attempts):
    for each in attempts:
        try:
            found = each()
        except OSError:
            continue
        return tell(True, repr(found))
    tell(False)
"""

HARMLESS = {
    "read a file of the host": "attempt(lambda: open(host['secret']).read())",
    "write a file of the host": "attempt(lambda: open(host['outside'] + '/new', 'w').write('x'))",
    "delete a file of the host": "attempt(lambda: os.unlink(host['outside'] + '/doomed'))",
    "truncate a file of the host": "attempt(lambda: os.truncate(host['outside'] + '/long', 0))",
    "list a folder of the host": "attempt(lambda: os.listdir(host['outside']))",
    "follow a link out of the folder": "attempt(lambda: open('link').read())",
    "follow a link of the folder's above": "attempt(lambda: open('up/outside/secret').read())",
    "write through a link": "attempt(lambda: open('link_to_folder/new', 'w').write('x'))",
    "make a hard link of a host's file": "attempt(lambda: os.link(host['secret'], 'hard'))",
    "connect by TCP on loopback": "attempt(lambda: socket.create_connection(('127.0.0.1', host['tcp']), 5))",
    "connect to an abstract socket": (
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + host['abstract']))"
    ),
    "connect to a socket's path": "attempt(lambda: socket.socket(socket.AF_UNIX).connect(host['path']))",
    "read the environment of a process": (
        "attempt(lambda: (host['marker'] in open(f\"/proc/{host['victim']}/environ\").read()) or 1 / 0,"
        " OSError, ZeroDivisionError)"
    ),
    "find secrets in the environment": "tell(host['marker'] in repr(dict(os.environ)))",
    "signal a process of the host": "attempt(lambda: os.kill(host['victim'], 0))",
    "change limits of a process of the host": (
        "import resource\nattempt(lambda: resource.prlimit(host['victim'], resource.RLIMIT_CORE, (0, 0)))"
    ),
    "take shared memory of the host": "tell(libc.shmget(host['shm'], 16, 0) >= 0)",
    "open shared memory by name": "attempt(lambda: open('/dev/shm/' + host['shm_name']).read())",
    "use an inherited descriptor": "attempt(lambda: os.fstat(host['descriptor']))",
    "make a user namespace": "tell(libc.unshare(0x10000000) == 0)",
    "use io_uring": "tell(ctypes.get_errno() if libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0 else 0)",
    "read memory of the host's process": "tell(libc.ptrace(0x4206, host['victim'], None, None) == 0)",
    "list processes of the host": "attempt(lambda: open(f\"/proc/{host['victim']}/cmdline\").read())",
}

# Held by either level, and not tried without one.
BOUND = {
    "read /etc/shadow": "attempt(lambda: open('/etc/shadow').read())",
    "write to the system": (
        "every(*[lambda p=p: open(p, 'w') for p in ('/usr/council-probe', '/usr/bin/council-probe', "
        "'/etc/council-probe', '/council-probe', '/lib/council-probe', '/dev/council-probe')])"
    ),
    "open devices": (
        "every(*[lambda p=p: open(p, 'rb') for p in ('/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/loop0', "
        "'/dev/nvme0n1', '/dev/kvm', '/dev/fuse')])"
    ),
    "make a device": "import stat\nattempt(lambda: os.mknod('device', 0o600 | stat.S_IFBLK, os.makedev(7, 0)))",
    "mount": "os.mkdir('at')\ntell(libc.mount(b'none', b'at', b'tmpfs', 0, None) == 0)",
    "become root": "attempt(lambda: os.setuid(0))",
    "gain rights from a setuid program": "tell(libc.prctl(39, 0, 0, 0, 0) != 1)",
    "have capabilities": (
        "try:\n  caps = [l.split()[1] for l in open('/proc/self/status') if l[:6] in ('CapPrm', 'CapEff')]\n"
        "except OSError:\n  caps = []\n"
        "tell(any(int(each, 16) for each in caps))"
    ),
    "reach the network": (
        "try:\n  socket.create_connection(('192.0.2.1', 80), 60)\n"
        "except TimeoutError:\n  tell(True, 'a packet left')\nexcept OSError as error:\n  tell(False, repr(error))\n"
        "else:\n  tell(True)"
    ),
    "resolve a name": "attempt(lambda: socket.getaddrinfo('example.com', 80))",
    "leave by /proc": (
        "every(*[lambda p=p: open(p + host['secret']) for p in ('/proc/1/root', '/proc/self/root', "
        "'/proc/1/cwd/../../..', "
        "f\"/proc/{host['executor']}/root\")])"
    ),
    "write settings of the kernel": (
        "every(*[lambda p=p: open(p, 'w') for p in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', "
        "'/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs')])"
    ),
    "type into a terminal": (
        "import fcntl, termios\n"
        "every(lambda: os.open('/dev/tty', os.O_RDWR), "
        "*[lambda n=n: fcntl.ioctl(n, termios.TIOCSTI, b'x') for n in (0, 1, 2)])"
    ),
    "use keys of the kernel": "tell(libc.syscall(250 if os.uname().machine == 'x86_64' else 219, 0, -4, 1) >= 0)",
    "take all memory": "attempt(lambda: bytearray(2**31), MemoryError)",
    "write a huge file": (
        "def write():\n  with open('huge', 'wb') as file:\n    for _ in range(64): file.write(bytes(2**20))\n"
        "attempt(write)"
    ),
    "hold many files open": "attempt(lambda: [open('/dev/null') for _ in range(3000)])",
    "fork": (
        "made = 0\n"
        "try:\n  for _ in range(200):\n    child = os.fork()\n    if child == 0:\n"
        "      import time; time.sleep(60); os._exit(0)\n"
        "    made += 1\n"
        "except OSError as error:\n  tell(made >= host['processes_max'], f'{made} {error!r}')\n"
        "else:\n  tell(True, made)"
    ),
}
