//! `process_escape`: what is found, and what only looks like it.

use super::*;

#[test]
fn process_escape() {
    let barred = [
        (Python, "import os\nos.system('ls')"),
        (Python, "from os import system as s\ns('ls')"),
        (Python, "import os as o\nf = o.popen\nf('ls')"),
        (Python, "import subprocess\nresult = subprocess.run(['ls'])"),
        (Python, "import subprocess as sp\nresult = sp.check_output('ls')"),
        (Python, "__import__('os').system('ls')"),
        (Python, "import os\ngetattr(os, 'system')('ls')"),
        (Python, "import importlib\nimportlib.import_module('subprocess').run('ls')"),
        (Python, "from os import *\nsystem('ls')"),
        (Python, "import os\nlist(map(os.system, ['ls']))"),
        (Python, "import os\nos.execvp('ls', [])"),
        (Python, "import os, signal\nos.kill(1, signal.SIGTERM)"),
        (Python, "import ctypes\nctypes.CDLL(None)"),
        (Python, "from multiprocessing import Pool\nPool(2)"),
        (Python, "from concurrent.futures import ProcessPoolExecutor as E\nE()"),
        (Python, "import asyncio\nasyncio.create_subprocess_shell('ls')"),
        (Python, "import pty\npty.spawn('sh')"),
        (Python, "import signal\nsignal.signal(2, print)"),
        (Ruby, "system('ls')"),
        (Ruby, "system 'ls'"),
        (Ruby, "`ls`"),
        (Ruby, "%x(ls #{args[0]})"),
        (Ruby, "exec 'ls'"),
        (Ruby, "fork { 1 }"),
        (Ruby, "fork"),
        (Ruby, "Kernel.spawn('ls')"),
        (Ruby, "send(:system, 'ls')"),
        (Ruby, "Kernel.public_send(:system, 'ls')"),
        (Ruby, "require 'open3'\nOpen3.capture2('ls')"),
        (Ruby, "IO.popen('ls')"),
        (Ruby, "Process.kill(:TERM, 1)"),
        (Ruby, "::Process.spawn 'ls'"),
        (Ruby, "syscall 1"),
        (Ruby, "open('|ls')"),
        (Ruby, "\"#{system('ls')}\""),
        (Ruby, "Signal.trap('INT') {}"),
        (Ruby, "method(:system).call('ls')"),
        (Ruby, "Kernel.method(:system).call('ls')"),
        (Ruby, "Process.method(:fork).call"),
        (Ruby, "run = method(:system)\nrun.('ls')"),
        (Ruby, "%w[ls].each(&method(:system))"),
        (Ruby, "Kernel.public_send(:fork)"),
        (Ruby, "Process.public_send('spawn', 'ls')"),
        (Python, "__import__('subprocess').run(['ls'])"),
        (Python, "m = __import__('subprocess')\nm.run(['ls'])"),
        (Python, "import importlib as i\nm = i.import_module('subprocess')\nm.Popen('ls')"),
        (Python, "from importlib import import_module\nimport_module('os').system('ls')"),
        (Python, "import os\nf = getattr(os, 'system')\nf('ls')"),
        (Python, "getattr(__import__('os'), 'system')('ls')"),
        (Python, "import sys\nsys.modules['os'].system('ls')"),
        (Python, "import os\nos.__dict__['system']('ls')"),
        (Python, "import os\nvars(os)['system']('ls')"),
    ];
    for (language, source) in barred {
        check(language, source, &[ProcessEscape]);
        let inspection = inspect(language, source).unwrap();
        let call = Call::default();
        let policy = GuardrailPolicy { allow_processes: true, ..GuardrailPolicy::default() };
        assert_eq!(examine(&call.input(language, &inspection), &policy), [], "{source}");
    }
}

#[test]
fn what_only_looks_like_process_escape() {
    let passing = [
        (Python, "system = {'kill': 1}\nresult = system['kill']"),
        (Python, "result = 'os.system(1)' # import os; os.system('ls')"),
        (Python, "def system(x): return x\nresult = system('ls')"),
        (Python, "import os\nresult = os.path.join('a', os.getcwd(), os.environ['x'])"),
        (Python, "job = args[0]\njob.kill()\njob.system('ls')"),
        (
            Python,
            "import subprocess\ntry:\n    result = 1\nexcept subprocess.CalledProcessError:\n    raise",
        ),
        (Python, "import multiprocessing\nresult = multiprocessing.cpu_count()"),
        (Python, "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()"),
        (Python, "class os: pass\nos.system = 1\nresult = os.system"),
        (Ruby, "system = { kill: 1 }\nsystem[:kill]"),
        (Ruby, "{ system: 'ls', exec: 1, \"fork\" => 2 }"),
        (Ruby, "job = args[0]\njob.kill\njob.system('ls')\njob.spawn(1)"),
        (Ruby, "'system(\"ls\")' # system('ls')\n"),
        (Ruby, "def system(x) = x\nsystem('ls')"),
        (Ruby, "Process.clock_gettime(Process::CLOCK_MONOTONIC)"),
        (Ruby, "Thread.new { 1 }.kill"),
        (Ruby, "File.open('|x')"),
        (Ruby, "/`ls`/.match(args[0])"),
        (Ruby, "context[:system] = :spawn"),
        (Ruby, "def system(x) = x\nmethod(:system).call('ls')"),
        (Ruby, "args[0].method(:spawn).call"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
    }
}
