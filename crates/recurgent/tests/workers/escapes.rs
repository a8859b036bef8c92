//! Programs that try to get out, to look around, or to use everything up. None may, at the two
//! strongest tiers; docs/security.md says what weaker ones do not stop, and they are held to that here.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::{EndedBy, Limit};
use recurgent::guest::Done;
use recurgent::worker::Tier;
use serde_json::{Value, json};

use crate::drive::{Driver, Program};
use crate::value;

/// What a program meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It finds nothing: a null, an empty list, or an exception of its own.
    Nothing,
    /// It finds something: this tier does not stop it.
    Escapes,
    /// A limit by name.
    Limit(Limit),
    /// Its time is up.
    Timeout,
    /// It is ended for what it did.
    Crash,
    /// Depends on who runs this, so nothing is promised.
    Either,
}
use End::{Crash, Either, Escapes, Nothing, Timeout};

/// One attempt, in both guests. `args` are: a secret file, a directory of the host's, the host's process
/// number, a port the host listens on, the path of a socket the host listens on, another agent's file, the
/// name of a socket of the host's that has no path, the path of one that takes datagrams.
struct Attempt {
    name: &'static str,
    python: &'static str,
    ruby: &'static str,
    /// At `sealed`, `namespaces`, `landlock`, `process`.
    ends: [End; 4],
}

const fn limit(limit: Limit) -> End {
    End::Limit(limit)
}

#[rustfmt::skip]
const ATTEMPTS: &[Attempt] = &[
    // --- looking around
    Attempt { name: "keys in the environment", ends: [Nothing; 4],
        python: "import os\nresult = [k for k in os.environ if k not in ('PATH', 'LANG', 'HOME', 'TMPDIR', 'LC_CTYPE')]",
        ruby: "ENV.keys - %w[PATH LANG HOME TMPDIR LC_CTYPE]" },
    Attempt { name: "the host's environment", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "result = open(f'/proc/{args[2]}/environ').read()",
        ruby: "File.read(\"/proc/#{args[2]}/environ\")" },
    Attempt { name: "a secret file", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "result = open(args[0]).read()",
        ruby: "File.read(args[0])" },
    Attempt { name: "a secret file, through /proc", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "result = open('/proc/self/root' + args[0]).read()",
        ruby: "File.read('/proc/self/root' + args[0])" },
    Attempt { name: "a secret file, through a link", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nos.symlink(args[0], 'link')\nresult = open('link').read()",
        ruby: "File.symlink(args[0], 'link')\nFile.read('link')" },
    Attempt { name: "a secret file, through the directories above", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "result = open('../' * 30 + args[0]).read()",
        ruby: "File.read('../' * 30 + args[0])" },
    Attempt { name: "a secret file, through a hard link", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nos.link(args[0], 'link')\nresult = open('link').read()",
        ruby: "File.link(args[0], 'link')\nFile.read('link')" },
    Attempt { name: "password hashes", ends: [Nothing, Nothing, Nothing, Either],
        python: "result = open('/etc/shadow').read()",
        ruby: "File.read('/etc/shadow')" },
    Attempt { name: "other processes", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nresult = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]",
        ruby: "Dir.children('/proc').grep(/\\A\\d+\\z/).map(&:to_i) - [Process.pid]" },
    Attempt { name: "the zygote's memory", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')\nresult = True",
        ruby: "File.open(\"/proc/#{Process.ppid}/mem\")\ntrue" },
    Attempt { name: "another agent's file", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "result = open(args[5]).read()",
        ruby: "File.read(args[5])" },
    Attempt { name: "descriptors of files", ends: [Nothing; 4],
        python: "import os, stat\nfound = []\nfor fd in range(256):\n    try: mode = os.fstat(fd).st_mode\n    except OSError: continue\n    if stat.S_ISREG(mode) or stat.S_ISDIR(mode): found.append(fd)\nresult = found",
        ruby: "(0..255).select { |fd| s = IO.for_fd(fd, autoclose: false).stat rescue next\n s.file? || s.directory? }" },
    // --- writing elsewhere
    Attempt { name: "a file outside", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "open(args[1] + '/planted', 'w').write('x')\nresult = True",
        ruby: "File.write(args[1] + '/planted', 'x')\ntrue" },
    Attempt { name: "a file outside, through a link", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nos.symlink(args[1], 'out')\nopen('out/planted', 'w').write('x')\nresult = True",
        ruby: "File.symlink(args[1], 'out')\nFile.write('out/planted', 'x')\ntrue" },
    Attempt { name: "the interpreter's own library", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nopen(os.path.join(os.path.dirname(os.__file__), 'recurgent_planted'), 'w').write('x')\nos.remove(os.path.join(os.path.dirname(os.__file__), 'recurgent_planted'))\nresult = True",
        ruby: "file = File.join(RbConfig::CONFIG['rubylibdir'], 'recurgent_planted')\nFile.write(file, 'x')\nFile.delete(file)\ntrue" },
    Attempt { name: "a program of its own making, executed", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os, subprocess\nopen('p', 'w').write('#!/bin/sh\\necho out\\n')\nos.chmod('p', 0o755)\nresult = subprocess.run(['./p'], capture_output=True).stdout.decode()",
        ruby: "File.write('p', \"#!/bin/sh\\necho out\\n\")\nFile.chmod(0o755, 'p')\n`./p`" },
    Attempt { name: "a program of its own making, through the loader", ends: [Nothing, Nothing, Escapes, Escapes],
        python: "import subprocess\nopen('p', 'wb').write(open('/bin/echo', 'rb').read())\nresult = subprocess.run(['/lib64/ld-linux-x86-64.so.2', './p', 'out'], capture_output=True).stdout.decode()",
        ruby: "IO.copy_stream('/bin/echo', 'p')\n`/lib64/ld-linux-x86-64.so.2 ./p out 2>/dev/null`" },
    Attempt { name: "the names of files that come and go", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import ctypes\nlibc = ctypes.CDLL(None)\nresult = libc.inotify_add_watch(libc.inotify_init1(0), args[1].encode(), 0x100) > 0",
        ruby: "syscall(254, syscall(294, 0), [args[1]].pack('P').unpack1('J'), 0x100) > 0" },
    Attempt { name: "how large a file is", ends: [Nothing, Nothing, Escapes, Escapes],
        python: "import os\nresult = os.stat(args[0]).st_size",
        ruby: "File.size(args[0])" },
    Attempt { name: "whose a process is", ends: [Nothing, Nothing, Escapes, Escapes],
        python: "import os\nresult = [os.stat(f'/proc/{args[2]}').st_uid]",
        ruby: "[File.stat(\"/proc/#{args[2]}\").uid]" },
    // Landlock does not know of modes, so only who runs this matters there.
    Attempt { name: "the mode of a file outside", ends: [Nothing, Nothing, Either, Escapes],
        python: "import os\nos.chmod(args[0], 0o644)\nresult = True",
        ruby: "File.chmod(0o644, args[0])\ntrue" },
    Attempt { name: "a file that lends its owner's rights", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nfound = []\nfor lend in (lambda: os.close(os.open('a', os.O_CREAT | os.O_WRONLY, 0o4755)), lambda: os.chmod('.', 0o2700)):\n    try: lend(); found.append(True)\n    except OSError: pass\nresult = found",
        ruby: "[-> { File.open('a', 'w', 0o4755) {} }, -> { File.chmod(0o2700, '.') }].select { |lend| lend.call || true rescue nil }.size.nonzero?" },
    // --- talking
    Attempt { name: "a server on loopback", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import socket\nsocket.create_connection(('127.0.0.1', args[3]), 2)\nresult = True",
        ruby: "require 'socket'\nTCPSocket.new('127.0.0.1', args[3])\ntrue" },
    Attempt { name: "a datagram to loopback", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import socket\nresult = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', args[3]))",
        ruby: "require 'socket'\nUDPSocket.new.send('x', 0, '127.0.0.1', args[3])" },
    Attempt { name: "a public address", ends: [Nothing, Nothing, Nothing, Either],
        python: "import errno, socket\ns = socket.socket()\ns.setblocking(False)\nresult = s.connect_ex(('192.0.2.1', 80)) == errno.EINPROGRESS",
        ruby: "require 'socket'\nbegin\n  Socket.new(:INET, :STREAM).connect_nonblock(Socket.sockaddr_in(80, '192.0.2.1'))\nrescue IO::WaitWritable\n  true\nend" },
    Attempt { name: "a socket of the host's", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import socket\nsocket.socket(socket.AF_UNIX).connect(args[4])\nresult = True",
        ruby: "require 'socket'\nUNIXSocket.new(args[4])\ntrue" },
    Attempt { name: "a socket of the host's that takes datagrams", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import socket\nresult = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', args[7])",
        ruby: "require 'socket'\nSocket.pair(:UNIX, :DGRAM).first.send('x', 0, Socket.sockaddr_un(args[7]))" },
    Attempt { name: "a pair of sockets of another family", ends: [Nothing, Nothing, Nothing, Either],
        python: "import socket\nresult = socket.socketpair(30, socket.SOCK_SEQPACKET) and True",
        ruby: "require 'socket'\nSocket.pair(30, :SEQPACKET, 0)\ntrue" },
    Attempt { name: "the hypervisor", ends: [Nothing, Nothing, Nothing, Either],
        python: "import socket\nsocket.socket(40, socket.SOCK_STREAM)\nresult = True",
        ruby: "require 'socket'\nSocket.new(40, :STREAM, 0)\ntrue" },
    // --- other processes
    Attempt { name: "a signal to the host", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nos.kill(args[2], 0)\nresult = True",
        ruby: "Process.kill(0, args[2])\ntrue" },
    Attempt { name: "a signal to the zygote", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import os\nos.kill(os.getppid(), 0)\nresult = True",
        ruby: "Process.kill(0, Process.ppid)\ntrue" },
    Attempt { name: "a signal to the zygote, by way of a descriptor", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\nresult = True",
        ruby: "IO.pipe.first.fcntl(8, Process.ppid)\ntrue" },
    Attempt { name: "a signal to anybody", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\ndef hit(pid):\n    try: os.kill(pid, 0); return True\n    except OSError: return False\nresult = [pid for pid in range(1, 400) if pid != os.getpid() and hit(pid)]",
        ruby: "(1..400).select { |pid| pid != Process.pid && (Process.kill(0, pid) rescue nil) }" },
    Attempt { name: "tracing the zygote", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, os\nresult = ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
        ruby: "syscall(101, 16, Process.ppid, 0, 0) == 0" },
    // --- the kernel
    Attempt { name: "becoming root", ends: [Nothing, Nothing, Either, Either],
        python: "import os\nos.setuid(0)\nresult = os.getuid() == 0",
        ruby: "Process::Sys.setuid(0)\nProcess.uid.zero?" },
    Attempt { name: "capabilities", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndata = (ctypes.c_uint32 * 6)()\nctypes.CDLL(None).capget(head, data)\nresult = [n for n in data if n]",
        ruby: "data = \"\\0\" * 24\nhead = [0x20080522, 0].pack('LL')\nsyscall(125, [head].pack('P').unpack1('J'), [data].pack('P').unpack1('J'))\ndata.unpack('L6') - [0]" },
    Attempt { name: "namespaces of its own", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes\nresult = ctypes.CDLL(None).unshare(0x10000000) == 0",
        ruby: "syscall(272, 0x10000000) == 0" },
    Attempt { name: "a mount", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, os\nlibc = ctypes.CDLL(None)\nos.mkdir('m')\nresult = [own for own in (0x10020000, 0x20000) if libc.unshare(own) == 0 and libc.mount(b'none', b'm', b'tmpfs', 0, None) == 0]",
        ruby: "Dir.mkdir('m')\nat = %w[none m tmpfs].map { |text| [text].pack('p').unpack1('J') }\n[0x10020000, 0x20000].select { |own| syscall(272, own) && syscall(165, *at, 0, 0) rescue nil }" },
    Attempt { name: "rare system calls", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nfound = []\nfor number in (101, 250, 298, 310, 321, 323, 425, 434 + 4, 161, 155, 308):\n    ctypes.set_errno(0)\n    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): found.append(number)\nresult = found",
        ruby: "[101, 250, 298, 310, 321, 323, 425, 438, 161, 155, 308].reject do |number|\n  syscall(number, 0, 0, 0, 0, 0)\n  false\nrescue Errno::EPERM, Errno::ENOSYS\n  true\nrescue SystemCallError\n  false\nend" },
    Attempt { name: "system calls under other numbers", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nresult = libc.syscall(0x40000000 + 101, 16, 1, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS)",
        ruby: "begin\n  syscall(0x40000000 + 101, 16, 1, 0, 0)\n  true\nrescue Errno::EPERM, Errno::ENOSYS\n  nil\nend" },
    // --- the memory, limits and standing of other agents' workers
    Attempt { name: "another agent's memory", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nfound = []\nfor pid in range(1, 400):\n    if pid == os.getpid(): continue\n    try: found.append(len(open(f'/proc/{pid}/maps').read()) or 0) if open(f'/proc/{pid}/mem', 'rb') else 0\n    except OSError: pass\nresult = found",
        ruby: "(1..400).select { |pid| pid != Process.pid && (File.open(\"/proc/#{pid}/mem\") rescue nil) }" },
    Attempt { name: "another's memory, by a system call", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes\nlibc = ctypes.CDLL(None)\nbuf = ctypes.create_string_buffer(16)\nvec = (ctypes.c_uint64 * 2)(ctypes.addressof(buf), 16)\nresult = [pid for pid in range(1, 400) if pid != __import__('os').getpid() and libc.process_vm_readv(pid, vec, 1, vec, 1, 0) >= 0]",
        ruby: "vec = [['x' * 16].pack('P').unpack1('J'), 16].pack('QQ')\nat = [vec].pack('P').unpack1('J')\n(1..400).select { |pid| pid != Process.pid && (syscall(310, pid, at, 1, at, 1, 0) rescue nil) }" },
    Attempt { name: "another's limits", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, os\nlibc = ctypes.CDLL(None)\nold = (ctypes.c_uint64 * 2)()\nresult = [pid for pid in range(1, 400) if pid != os.getpid() and libc.prlimit(pid, 4, None, old) == 0]",
        ruby: "at = ['x' * 16].pack('P').unpack1('J')\n(1..400).select { |pid| pid != Process.pid && (syscall(302, pid, 4, 0, at) rescue nil) }" },
    Attempt { name: "another's priority", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nfound = []\nfor pid in range(1, 400):\n    try:\n        if pid != os.getpid(): os.setpriority(os.PRIO_PROCESS, pid, 19); found.append(pid)\n    except OSError: pass\ntry: os.setpriority(os.PRIO_USER, 0, 19); found.append('user')\nexcept OSError: pass\nresult = found",
        ruby: "found = (1..400).select { |pid| pid != Process.pid && (Process.setpriority(Process::PRIO_PROCESS, pid, 19) rescue nil) }\nfound << 'user' if (Process.setpriority(Process::PRIO_USER, 0, 19) rescue nil)\nfound" },
    Attempt { name: "another's processors", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nfound = []\nfor pid in range(1, 400):\n    try:\n        if pid != os.getpid(): os.sched_setaffinity(pid, [0]); found.append(pid)\n    except OSError: pass\nresult = found",
        ruby: "at = [[1].pack('Q')].pack('P').unpack1('J')\n(1..400).select { |pid| pid != Process.pid && (syscall(203, pid, 8, at) rescue nil) }" },
    Attempt { name: "everybody, at once", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nos.kill(-1, 0)\nresult = True",
        ruby: "Process.kill(0, -1)\ntrue" },
    Attempt { name: "a namespace of another's", ends: [Nothing; 4],
        python: "import ctypes, os\nlibc = ctypes.CDLL(None)\nfound = []\nfor kind in ('mnt', 'net', 'pid', 'user'):\n    for pid in (1, os.getppid(), args[2]):\n        try: fd = os.open(f'/proc/{pid}/ns/{kind}', os.O_RDONLY)\n        except OSError: continue\n        if libc.setns(fd, 0) == 0 and os.geteuid(): found.append(kind)\nresult = found",
        ruby: "%w[mnt net pid user].select { |kind| [1, Process.ppid, args[2]].any? { |pid| syscall(308, File.open(\"/proc/#{pid}/ns/#{kind}\").fileno, 0).zero? && !Process.euid.zero? rescue nil } }" },
    Attempt { name: "a socket without a name", ends: [Nothing, Nothing, Nothing, Escapes],
        python: "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0' + args[6])\nresult = True",
        ruby: "require 'socket'\nUNIXSocket.new(\"\\0\" + args[6])\ntrue" },
    Attempt { name: "descriptors that were left open", ends: [Nothing; 4],
        python: "import os, stat\nsockets = []\nother = []\nfor fd in range(256):\n    try: mode = os.fstat(fd).st_mode\n    except OSError: continue\n    if stat.S_ISSOCK(mode): sockets.append(fd)\n    elif fd > 2 and not stat.S_ISFIFO(mode): other.append(fd)\nresult = other + sockets[1:]",
        ruby: "sockets, others = [], []\n(0..255).each do |fd|\n  stat = IO.for_fd(fd, autoclose: false).stat rescue next\n  if stat.socket? then sockets << fd\n  elsif fd > 2 && !stat.pipe? && stat.ftype != 'unknown' then others << fd\n  end\nend\nothers + sockets.drop(1)" },
    Attempt { name: "typing into a terminal", ends: [Nothing; 4],
        python: "import fcntl, termios\nfound = []\nfor fd in range(16):\n    try: fcntl.ioctl(fd, termios.TIOCSTI, b'x'); found.append(fd)\n    except OSError: pass\ntry: open('/dev/tty'); found.append('tty')\nexcept OSError: pass\nresult = found",
        ruby: "found = (0..15).select { |fd| IO.for_fd(fd, autoclose: false).ioctl(0x5412, 'x') rescue nil }\nfound << 'tty' if (File.open('/dev/tty') rescue nil)\nfound" },
    Attempt { name: "a program that is no file, executed", ends: [Nothing, Nothing, Nothing, Either],
        python: "import os\nfd = os.memfd_create('p')\nos.write(fd, b'#!/bin/sh\\necho out\\n')\nresult = True",
        ruby: "syscall(319, ['p'].pack('P').unpack1('J'), 0)\ntrue" },
    Attempt { name: "memory that outlives it", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes\nlibc = ctypes.CDLL(None)\nresult = [n for n in (libc.shmget(0, 1 << 20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)) if n >= 0 and [libc.shmctl(n, 0, None)]]",
        ruby: "[[29, 0, 1 << 20, 0o1600], [68, 0, 0o1600], [64, 0, 1, 0o1600]].select { |call| syscall(*call) rescue nil }" },
    Attempt { name: "kernel interfaces", ends: [Nothing, Nothing, Nothing, Either],
        python: "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nfound = []\nfor name, call in {'io_uring': (425, 8, 0), 'userfaultfd': (323, 1), 'bpf': (321, 0, 0, 0), 'keyctl': (250, 0, -3, 0), 'perf': (298, 0, 0, -1, -1, 0), 'fsopen': (430, 0, 0), 'handle': (304, -1, 0, 0)}.items():\n    ctypes.set_errno(0)\n    if libc.syscall(*call) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): found.append(name)\nresult = found",
        ruby: "[[425, 8, 0], [323, 1], [321, 0, 0, 0], [250, 0, -3, 0], [298, 0, 0, -1, -1, 0], [430, 0, 0], [304, -1, 0, 0]].reject do |call|\n  syscall(*call)\n  false\nrescue Errno::EPERM, Errno::ENOSYS\n  true\nrescue SystemCallError\n  false\nend" },
    // --- using everything up
    Attempt { name: "processes without end", ends: [limit(Limit::Processes), limit(Limit::Processes), Either, Either],
        python: "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)\nresult = True",
        ruby: "200.times { fork { sleep 30 } }\ntrue" },
    Attempt { name: "threads without end", ends: [limit(Limit::Processes), limit(Limit::Processes), Either, Either],
        python: "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\nresult = True",
        ruby: "200.times { Thread.new { sleep 30 } }\ntrue" },
    Attempt { name: "memory without end", ends: [limit(Limit::Memory); 4],
        python: "kept = []\nwhile True: kept.append(bytearray(256 << 20))",
        ruby: "kept = []\nloop { kept << 'x' * (256 << 20) }" },
    Attempt { name: "memory of another kind", ends: [limit(Limit::Memory); 4],
        python: "import mmap\nkept = []\nwhile True: kept.append(mmap.mmap(-1, 64 << 20))",
        ruby: "loop { syscall(9, 0, 64 << 20, 3, 0x22, -1, 0) }" },
    Attempt { name: "the disk", ends: [limit(Limit::Scratch), limit(Limit::Scratch), Escapes, Escapes],
        python: "for n in range(20):\n    with open(f'f{n}', 'wb') as file: file.write(b'x' * (4 << 20))\nresult = True",
        ruby: "20.times { |n| File.binwrite(\"f#{n}\", 'x' * (4 << 20)) }\ntrue" },
    Attempt { name: "one huge file", ends: [limit(Limit::FileSize); 4],
        python: "with open('f', 'wb') as file:\n    while True: file.write(b'x' * (4 << 20)); file.flush()",
        ruby: "File.open('f', 'wb') { |file| loop { file.write('x' * (4 << 20)); file.flush } }" },
    Attempt { name: "files without end", ends: [limit(Limit::Scratch), limit(Limit::Scratch), Escapes, Escapes],
        python: "for n in range(5000): open(f'f{n}', 'w').close()\nresult = True",
        ruby: "5000.times { |n| File.write(\"f#{n}\", '') }\ntrue" },
    Attempt { name: "values without end", ends: [limit(Limit::Frame); 4],
        python: "result = [{'a': 0}] * 1000000",
        ruby: "[{ a: 0 }] * 1_000_000" },
    Attempt { name: "descriptors without end", ends: [limit(Limit::Files); 4],
        python: "kept = []\nwhile True: kept.append(open('/dev/null'))",
        ruby: "kept = []\nloop { kept << File.open('/dev/null') }" },
    Attempt { name: "a frame that never ends", ends: [limit(Limit::Frame); 4],
        python: "import os, socket, stat\nfor fd in range(3, 64):\n    try: mode = os.fstat(fd).st_mode\n    except OSError: continue\n    if stat.S_ISSOCK(mode):\n        channel = socket.socket(fileno=fd)\n        while True: channel.sendall(b'x' * (1 << 20))",
        ruby: "(3..64).each do |fd|\n  io = IO.for_fd(fd, autoclose: false) rescue next\n  loop { io.write('x' * (1 << 20)) } if io.stat.socket?\nend" },
    // Whose frame it is depends on where it comes from: this one ends the liar's own call, with nothing.
    Attempt { name: "a frame that lies about its call", ends: [Nothing; 4],
        python: "import os, stat, time\nlie = b'{\"op\":\"done\",\"call_id\":\"call-2\",\"agent\":\"other\",\"status\":\"ok\",\"value\":null,\"context\":{\"set\":{},\"unset\":[]}}\\n'\nfor fd in range(3, 64):\n    try:\n        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, lie)\n    except OSError: pass\ntime.sleep(60)",
        ruby: "lie = %q({\"op\":\"done\",\"call_id\":\"call-2\",\"agent\":\"other\",\"status\":\"ok\",\"value\":null,\"context\":{\"set\":{},\"unset\":[]}}) + \"\\n\"\n(3..64).each { |fd| io = IO.for_fd(fd, autoclose: false) rescue next\n(io.syswrite(lie) if io.stat.socket?) rescue nil }\nsleep 60" },
    Attempt { name: "a frame that answers for the host", ends: [Crash; 4],
        python: "import os, stat, time\nlie = b'{\"op\":\"answer\",\"ask_id\":1,\"value\":1}\\n'\nfor fd in range(3, 64):\n    try:\n        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, lie)\n    except OSError: pass\ntime.sleep(60)",
        ruby: "lie = %q({\"op\":\"answer\",\"ask_id\":1,\"value\":1}) + \"\\n\"\n(3..64).each { |fd| io = IO.for_fd(fd, autoclose: false) rescue next\n(io.syswrite(lie) if io.stat.socket?) rescue nil }\nsleep 60" },
    Attempt { name: "a processor", ends: [Timeout; 4],
        python: "while True: pass",
        ruby: "loop {}" },
    Attempt { name: "output without end", ends: [limit(Limit::Output); 4],
        python: "import os\nwhile True: os.write(1, b'x' * (1 << 16))",
        ruby: "loop { $stdout.syswrite('x' * (1 << 16)) }" },
];

/// The rows of the table in docs/security.md, by how they begin, and the attempts that hold them; those
/// without any have tests of their own.
const ROWS: &[(&str, &[&str])] = &[
    (
        "read keys",
        &[
            "keys in the environment",
            "descriptors of files",
            "descriptors that were left open",
            "typing into a terminal",
        ],
    ),
    (
        "read your files",
        &[
            "a secret file",
            "a secret file, through /proc",
            "a secret file, through a link",
            "a secret file, through the directories above",
            "a secret file, through a hard link",
            "password hashes",
            "another agent's file",
            "the names of files that come and go",
        ],
    ),
    (
        "write outside",
        &["a file outside", "a file outside, through a link", "the interpreter's own library"],
    ),
    (
        "execute a file",
        &[
            "a program of its own making, executed",
            "a program of its own making, through the loader",
            "a program that is no file, executed",
        ],
    ),
    ("change modes", &["the mode of a file outside"]),
    ("learn that", &["how large a file is", "whose a process is"]),
    ("leave a file", &["a file that lends its owner's rights"]),
    (
        "see, signal or trace",
        &[
            "the host's environment",
            "other processes",
            "the zygote's memory",
            "a signal to the host",
            "a signal to the zygote",
            "a signal to the zygote, by way of a descriptor",
            "a signal to anybody",
            "tracing the zygote",
            "another agent's memory",
            "another's memory, by a system call",
            "everybody, at once",
        ],
    ),
    ("change the limits", &["another's limits", "another's priority", "another's processors"]),
    ("signal another worker", &[]),
    (
        "talk to",
        &[
            "a server on loopback",
            "a datagram to loopback",
            "a public address",
            "a socket of the host's",
            "a socket of the host's that takes datagrams",
            "a pair of sockets of another family",
            "a socket without a name",
            "the hypervisor",
        ],
    ),
    (
        "gain privileges",
        &[
            "becoming root",
            "capabilities",
            "namespaces of its own",
            "a mount",
            "rare system calls",
            "system calls under other numbers",
            "a namespace of another's",
            "kernel interfaces",
        ],
    ),
    ("leave a daemon", &[]),
    ("keep memory", &["memory that outlives it"]),
    ("fill the disk", &["the disk", "files without end"]),
    ("make processes", &["processes without end", "threads without end"]),
    ("use more memory", &[]),
    ("speak for", &["a frame that lies about its call", "a frame that answers for the host"]),
    (
        "more memory",
        &[
            "memory without end",
            "memory of another kind",
            "one huge file",
            "descriptors without end",
            "a frame that never ends",
            "values without end",
            "a processor",
            "output without end",
        ],
    ),
    ("slow down", &[]),
];

#[test]
fn the_documents_promise_what_is_tried_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("| attempt | `sealed`").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), ROWS.len());
    for (row, (begins, names)) in rows.iter().zip(ROWS) {
        assert!(row[0].starts_with(begins), "{row:?} is not about {begins}");
        for (column, said) in row[1..].iter().enumerate().filter(|_| !names.is_empty()) {
            let of = |name: &&str| ATTEMPTS.iter().find(|it| it.name == *name).unwrap();
            let succeeds = |name: &&str| matches!(of(name).ends[column], Escapes | Either);
            let stopped = !names.iter().any(succeeds);
            assert_eq!(said.starts_with('—'), stopped, "{begins}, column {column}: {said}");
        }
    }
    for attempt in ATTEMPTS {
        let rows = ROWS.iter().filter(|(_, names)| names.contains(&attempt.name)).count();
        assert_eq!(rows, 1, "{} is in no row, or in several", attempt.name);
    }
}

/// Ruby waits for room to fork, and tries again, for as long as it is let.
fn expected(attempt: &Attempt, language: Language, column: usize) -> End {
    match (attempt.ends[column], language) {
        (End::Limit(Limit::Processes), Language::Ruby) if attempt.ruby.contains("fork") => Timeout,
        (end, _) => end,
    }
}

fn judged(ended: &Result<Done, WorkerFault>) -> End {
    let empty = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false))
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_str().is_some_and(str::is_empty)
    };
    match ended {
        Ok(Done { ending: ReportEnding::Value(found), .. }) if empty(found) => Nothing,
        Ok(Done { ending: ReportEnding::Raised { .. }, .. }) => Nothing,
        Ok(Done { ending: ReportEnding::Limited(limit, _), .. })
        | Err(WorkerFault::Limited(limit, _)) => End::Limit(*limit),
        Err(WorkerFault::TimedOut(_)) => Timeout,
        Err(WorkerFault::Crashed { by: EndedBy::Program, .. }) => Crash,
        _ => Escapes,
    }
}

/// What the host has that is no program's business.
struct Bait {
    directory: tempfile::TempDir,
    _listeners: [UnixListener; 2],
    _receiver: UnixDatagram,
    /// Open in every process started from here, unless it is closed there.
    _inherited: std::fs::File,
    _server: std::net::TcpListener,
    port: u16,
}

impl Bait {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "a key").unwrap();
        let receiver = UnixDatagram::bind(directory.path().join("datagrams")).unwrap();
        let unnamed = SocketAddr::from_abstract_name(abstract_name(directory.path())).unwrap();
        let listeners = [
            UnixListener::bind(directory.path().join("socket")).unwrap(),
            UnixListener::bind_addr(&unnamed).unwrap(),
        ];
        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let inherited = std::fs::File::open(directory.path().join("secret")).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        // Open to everybody: it is not by their modes that a program under root is kept from them.
        for place in ["", "secret", "socket", "datagrams"] {
            let everybody = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(directory.path().join(place), everybody).unwrap();
        }
        Self {
            directory,
            _listeners: listeners,
            _receiver: receiver,
            _inherited: inherited,
            _server: server,
            port,
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    fn args(&self, others_file: &Value) -> Vec<Value> {
        vec![
            json!(self.path("secret")),
            json!(self.directory.path()),
            json!(std::process::id()),
            json!(self.port),
            json!(self.path("socket")),
            others_file.clone(),
            json!(abstract_name(self.directory.path())),
            json!(self.path("datagrams")),
        ]
    }
}

fn abstract_name(directory: &Path) -> String {
    format!("recurgent{}", directory.display())
}

fn attempt_all(tier: Tier, column: usize) {
    let bait = Bait::new();
    for language in [Language::Python, Language::Ruby] {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.output_bytes = 16 << 20;
            options.limits.memory_bytes = 512 << 20;
            options.limits.file_bytes = 48 << 20;
        });
        assert_eq!(driver.containment().tier, tier, "{:?}", driver.containment().missing);
        let secretive = match language {
            Language::Python => {
                "import os\nopen('mine', 'w').write('private')\nresult = os.path.abspath('mine')"
            }
            Language::Ruby => "File.write('mine', 'private')\nFile.expand_path('mine')",
        };
        let other = Program {
            language,
            code: secretive,
            agent: "other",
            proven: true,
            ..Program::default()
        };
        let others_file = value(&driver.run(&other)).cloned().unwrap();
        let mut wrong = Vec::new();
        for attempt in ATTEMPTS {
            let code = if language == Language::Python { attempt.python } else { attempt.ruby };
            // In time for what ends by itself, on a loaded machine; not to be waited for otherwise.
            let expected = expected(attempt, language, column);
            let limit = match expected {
                Timeout => Duration::from_secs(1),
                Nothing | Escapes | End::Limit(_) | Crash | Either => Duration::from_mins(1),
            };
            let args = bait.args(&others_file);
            let ended = driver.run(&Program { language, code, args, limit, ..Program::default() });
            let met = match (judged(&ended), expected) {
                (Timeout, Escapes) => Escapes, // nothing but the clock stopped it, on a slow machine
                (met, _) => met,
            };
            if expected != Either && met != expected {
                let name = attempt.name;
                wrong.push(format!("{name}: {met:?} instead of {expected:?}: {ended:?}"));
            }
        }
        assert!(wrong.is_empty(), "in {language:?} at {tier}: {wrong:#?}");
        if tier > Tier::Process {
            assert!(!Path::new(&bait.path("planted")).exists());
        }
        assert!(value(&driver.run(&other)).is_some(), "others go on");
    }
}

#[test]
fn nothing_escapes_from_what_is_sealed() {
    attempt_all(Tier::Sealed, 0);
}

#[test]
fn nothing_escapes_from_namespaces() {
    attempt_all(Tier::Namespaces, 1);
}

#[test]
fn landlock_alone_stops_what_the_documents_say() {
    attempt_all(Tier::Landlock, 2);
}

#[test]
fn a_process_alone_stops_what_the_documents_say() {
    attempt_all(Tier::Process, 3);
}

#[test]
fn a_daemon_does_not_outlive_its_call() {
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        for (language, code) in [
            (
                Language::Python,
                "import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n    for leave in (os.setsid, os.setpgrp):\n        try: leave()\n        except OSError: pass\n    pid = os.fork()\n    if pid == 0: time.sleep(600)\n    os.write(w, str(pid).encode())\n    os._exit(0)\nresult = int(os.read(r, 20))",
            ),
            (
                Language::Ruby,
                "r, w = IO.pipe\nfork do\n  (Process.setsid rescue nil)\n  (Process.setpgrp rescue nil)\n  w.syswrite(fork { sleep 600 }.to_s)\n  exit!\nend\nr.readpartial(20).to_i",
            ),
        ] {
            let driver = Driver::with(|options| options.layers = tier.layers());
            for proven in [false, true] {
                let ended = driver.run(&Program { language, code, proven, ..Program::default() });
                let daemon = value(&ended).and_then(Value::as_u64);
                driver.await_end(daemon.unwrap_or_else(|| panic!("{ended:?}")));
            }
        }
    }
}

#[test]
fn processor_time_ends() {
    let told = [(Language::Python, "while True: pass"), (Language::Ruby, "loop {}")];
    let deaf = [
        (
            Language::Python,
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        ),
        (Language::Ruby, "trap('XCPU') {}\nloop {}"),
    ];
    let sealed = told.map(|program| (Tier::Sealed, program));
    let every = Tier::ALL.into_iter().flat_map(|tier| deaf.map(|program| (tier, program)));
    for (tier, (language, code)) in sealed.into_iter().chain(every) {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.cpu_seconds = 1;
        });
        let limit = Duration::from_mins(1);
        let ended = driver.run(&Program { language, code, limit, ..Program::default() });
        let met = judged(&ended);
        assert_eq!(met, End::Limit(Limit::Cpu), "{code} at {tier}: {ended:?}");
    }
}

/// Nothing is left then to raise an error with, or to report one. What Ruby makes of it depends on where it
/// happens, and collecting garbage again and again may take all its time.
#[test]
fn memory_used_up_little_by_little_is_a_limit() {
    let driver = Driver::with(|options| {
        options.layers = Tier::Sealed.layers();
        options.limits.memory_bytes = 160 << 20;
    });
    for (language, code) in [
        (Language::Python, "kept = {}\nwhile True: kept[len(kept)] = {len(kept): str(len(kept))}"),
        (Language::Python, "kept = []\nwhile True: kept = [kept]"),
    ] {
        let limit = Duration::from_mins(2);
        let ended = driver.run(&Program { language, code, limit, ..Program::default() });
        assert_eq!(judged(&ended), End::Limit(Limit::Memory), "{code}: {ended:?}");
    }
}

/// The kernel has no other word for it than a signal, which Ruby would make an abort of.
#[test]
fn a_file_in_memory_meets_the_limit_of_scratch_space() {
    let python = "import mmap\nfile = open('f', 'wb+')\nfile.truncate(16 << 20)\nheld = mmap.mmap(file.fileno(), 16 << 20)\n\
                for at in range(0, 16 << 20, 4096): held[at] = 1\nresult = True";
    let ruby = "require 'fiddle'\nfile = File.open('f', 'wb+')\nfile.truncate(16 << 20)\nint = Fiddle::TYPE_INT\n\
                map = Fiddle::Function.new(Fiddle.dlopen(nil)['mmap'], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T, int, int, int, Fiddle::TYPE_LONG], Fiddle::TYPE_VOIDP)\n\
                held = map.call(nil, 16 << 20, 3, 1, file.fileno, 0)\n(0...(16 << 20)).step(4096) { |at| held[at, 1] = 'x' }\ntrue";
    for tier in [Tier::Sealed, Tier::Namespaces] {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.scratch_bytes = 8 << 20;
        });
        for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
            let ended = driver.run(&Program { language, code, ..Program::default() });
            assert_eq!(
                judged(&ended),
                End::Limit(Limit::Scratch),
                "{language:?} at {tier}: {ended:?}"
            );
        }
    }
}

#[test]
fn a_kept_worker_is_replaced_before_its_processor_time_is_used_up() {
    let driver = Driver::with(|options| options.limits.cpu_seconds = 2);
    for (language, code) in [
        (
            Language::Python,
            "import os, time\nwhile time.process_time() < args[0]: pass\nresult = os.getpid()",
        ),
        (
            Language::Ruby,
            "nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < args[0]\nProcess.pid",
        ),
    ] {
        let run = |seconds: f64| {
            let args = vec![json!(seconds)];
            let kept = Program { language, code, args, proven: true, ..Program::default() };
            value(&driver.run(&kept)).cloned().unwrap()
        };
        let first = run(0.0);
        assert_eq!(run(1.2), first, "{language:?}");
        assert_ne!(run(0.0), first, "{language:?}");
    }
}

#[test]
fn an_attempt_leaves_no_file_behind() {
    for tier in Tier::ALL {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for (language, code) in [
            (
                Language::Python,
                "import os\nseen = os.listdir('.')\nopen('left', 'w').close()\nresult = seen",
            ),
            (Language::Ruby, "seen = Dir.children('.')\nFile.write('left', '')\nseen"),
        ] {
            for _ in 0..3 {
                let ended = driver.run(&Program { language, code, ..Program::default() });
                assert_eq!(value(&ended), Some(&json!([])), "{tier}: {ended:?}");
            }
        }
    }
}

#[test]
fn others_are_served_while_one_uses_everything_up() {
    for tier in Tier::ALL {
        serves_others(tier);
    }
}

fn serves_others(tier: Tier) {
    let driver = Driver::with(|options| options.layers = tier.layers());
    let greedy = ["processes without end", "threads without end", "the disk", "a processor"];
    std::thread::scope(|scope| {
        for name in greedy {
            let attempt = ATTEMPTS.iter().find(|attempt| attempt.name == name).unwrap();
            let driver = &driver;
            scope.spawn(move || {
                let limit = Duration::from_secs(2);
                driver.run(&Program {
                    code: attempt.python,
                    agent: name,
                    limit,
                    ..Program::default()
                })
            });
        }
        for n in 0..20 {
            let code = "import threading\nseen = []\nt = threading.Thread(target=seen.append, args=(1,))\nt.start()\nt.join()\nopen('f', 'w').write('x')\nresult = seen";
            let ended = driver.run(&Program { code, agent: "modest", ..Program::default() });
            assert_eq!(value(&ended), Some(&json!([1])), "{tier}, {n}: {ended:?}");
        }
    });
}
