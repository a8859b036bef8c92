//! `process_escape`: starting, replacing or signalling processes, and raw system calls.
//!
//! A program answers from its own worker process; what it starts would outlive its limits and its
//! rollback. Text that names a command is not a command: only calls of the real functions count,
//! also through import aliases, `getattr`, `send` and `method`. A name that is only put together while
//! the program runs, and code in a text that is evaluated, cannot be seen here: the worker's sandbox is
//! what holds them.
//!
//! ```python
//! from os import system as s; s("ls") # barred, and the import alone too
//! system = {"kill": 1}["kill"]        # passes
//! ```
//! ```ruby
//! `ls`                               # barred, as are system, spawn, IO.popen, Open3
//! system = config[:system]; job.kill # passes
//! ```

use crate::dialect::{Call, Inspection, Language, Position};

use super::{Finding, Subject};

/// Python functions by full name; a name that ends in `*` stands for all that start with it.
const PYTHON: &[&str] = &[
    "_ctypes.*",
    "_posixsubprocess.*",
    "asyncio.create_subprocess_*",
    "asyncio.subprocess.create_subprocess_*",
    "cffi.*",
    "commands.*",
    "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.process.*",
    "ctypes.*",
    "multiprocessing.*",
    "os.exec*",
    "os.fork*",
    "os.kill*",
    "os.pidfd_open",
    "os.popen*",
    "os.posix_spawn*",
    "os.setpgid",
    "os.setsid",
    "os.spawn*",
    "os.startfile",
    "os.system",
    "os.tcsetpgrp",
    "posix.exec*",
    "posix.fork*",
    "posix.kill*",
    "posix.posix_spawn*",
    "posix.system",
    "pty.*",
    "signal.alarm",
    "signal.pidfd_send_signal",
    "signal.pthread_kill",
    "signal.raise_signal",
    "signal.setitimer",
    "signal.signal",
    "signal.sigqueue",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "subprocess.run",
];

/// Python names under the above that start nothing.
const PYTHON_HARMLESS: &[&str] = &[
    "multiprocessing.TimeoutError",
    "multiprocessing.cpu_count",
    "multiprocessing.dummy*",
    "multiprocessing.pool",
    "multiprocessing.pool.ThreadPool",
];

/// Ruby functions every object has.
const RUBY_KERNEL: &[&str] = &["`", "exec", "fork", "spawn", "syscall", "system", "trap"];

/// Ruby functions by class; `*` stands for all of a class.
const RUBY: &[(&str, &str)] = &[
    ("Fiddle", "*"),
    ("FFI", "*"),
    ("IO", "popen"),
    ("Open3", "*"),
    ("PTY", "*"),
    ("Process", "daemon"),
    ("Process", "detach"),
    ("Process", "exec"),
    ("Process", "fork"),
    ("Process", "kill"),
    ("Process", "setpgid"),
    ("Process", "setsid"),
    ("Process", "spawn"),
    ("Signal", "trap"),
];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    let (name, position) = match subject.language {
        Language::Python => python(subject.inspection)?,
        Language::Ruby => ruby(subject.inspection)?,
    };
    Some(Finding::at(
        position,
        format!("`{name}` starts or signals a process, which this agent may not do"),
        "Do the work in the program itself with the standard library, or return an error outcome \
         `unsupported_capability` if it cannot be done without another process.",
    ))
}

/// Naming one of the functions is enough: a program that mentions `os.system` means to call it.
fn python(inspection: &Inspection) -> Option<(String, Position)> {
    let uses = inspection.paths.iter().map(|used| (used.path.clone(), used.position));
    let calls = inspection.calls.iter().filter_map(|call| Some((call.path()?, call.position)));
    uses.chain(calls)
        .filter(|(path, _)| is_listed(PYTHON, path) && !is_listed(PYTHON_HARMLESS, path))
        .min_by_key(|(_, position)| *position)
}

fn is_listed(table: &[&str], path: &str) -> bool {
    table.iter().any(|row| match row.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == *row,
    })
}

fn ruby(inspection: &Inspection) -> Option<(String, Position)> {
    let call =
        inspection.calls.iter().find(|call| is_kernel(call, inspection) || is_of_class(call))?;
    let class = call.receiver.as_ref().and_then(|receiver| receiver.path());
    let name = class.map_or_else(|| call.name.clone(), |class| format!("{class}.{}", call.name));
    Some((name, call.position))
}

/// A bare call, or one on `Kernel`. The program's own method of that name is its own business, and a
/// bare word without arguments is a variable that was never set, except `fork`.
fn is_kernel(call: &Call, inspection: &Inspection) -> bool {
    let on_kernel = match call.receiver.as_ref().map(|receiver| receiver.path()) {
        None => !inspection.defines(&call.name),
        Some(class) => matches!(class, Some("Kernel" | "::Kernel" | "Object")),
    };
    let name = call.name.as_str();
    let listed = RUBY_KERNEL.contains(&name);
    let given = !call.arguments.is_empty() || matches!(name, "fork" | "`");
    on_kernel && ((listed && given) || opens_pipe(call))
}

/// `open("|command")`.
fn opens_pipe(call: &Call) -> bool {
    let first = call.argument(0).and_then(|argument| argument.text());
    call.name == "open" && first.is_some_and(|text| text.starts_with('|'))
}

fn is_of_class(call: &Call) -> bool {
    let Some(class) = call.receiver.as_ref().and_then(|receiver| receiver.path()) else {
        return false;
    };
    let class = class.trim_start_matches("::");
    let top = class.split("::").next().unwrap_or(class);
    RUBY.iter().any(|&(owner, name)| {
        (owner == top && name == "*") || (owner == class && name == call.name)
    })
}
