//! The system calls a forked worker makes to confine itself before it may run a program.
//!
//! The zygote that forks it is an interpreter, so the calls are data: a list made here and carried out by
//! the harness of either guest, and by the probe.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use libc::c_long;
use serde_json::{Value, json};

use super::seccomp::{Filter, WORKER_NAMESPACES};
use super::sys;
use super::view::{SCRATCH, c_path};
use crate::grants::GrantedName;

/// One system call.
#[derive(Debug)]
pub(super) struct SealCall {
    number: c_long,
    arguments: Vec<Argument>,
}

#[derive(Debug)]
enum Argument {
    Number(c_long),
    /// The address of these bytes.
    Bytes(Vec<u8>),
    /// The address of these bytes, followed by the address of those.
    Record(Vec<u8>, Vec<u8>),
    /// The descriptor of the worker's Landlock ruleset.
    Ruleset,
    /// The descriptor that the last `openat` returned.
    Opened,
}

/// A limit set in the worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerLimit {
    pub(super) resource: u32,
    /// The soft limit.
    pub(super) soft: u64,
    /// The hard limit.
    pub(super) hard: u64,
}

/// The calls of one worker, in order; each layer adds its own.
#[derive(Debug, Default)]
pub(in crate::worker) struct Seal(Vec<SealCall>);

impl Seal {
    /// Waits for the only child of the process.
    pub(super) fn await_child(&mut self) {
        let any = Argument::Number(-1);
        let nothing = || Argument::Number(0);
        self.push(libc::SYS_wait4, vec![any, nothing(), nothing(), nothing()]);
    }

    /// Sets whether other processes of the same user may trace the process and read its `/proc` files.
    pub(super) fn set_dumpable(&mut self, dumpable: bool) {
        let set = Argument::Number(libc::PR_SET_DUMPABLE.into());
        let arguments = vec![set, Argument::Number(dumpable.into())];
        self.push(libc::SYS_prctl, arguments);
    }

    /// Enters a user and a mount namespace with a private scratch directory, which ends with the worker.
    pub(super) fn private_scratch(&mut self, id: u32, bytes: u64, files: u64) {
        self.push(libc::SYS_unshare, vec![Argument::Number(WORKER_NAMESPACES.into())]);
        self.write("/proc/self/setgroups", "deny");
        for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
            self.write(map, &format!("{id} {id} 1"));
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let options = format!("size={bytes},nr_inodes={files},mode=700");
        self.push(
            libc::SYS_mount,
            vec![
                text("tmpfs"),
                text(SCRATCH),
                text("tmpfs"),
                Argument::Number(flags.cast_signed()),
                text(&options),
            ],
        );
        self.push(libc::SYS_chdir, vec![text(SCRATCH)]);
        let header = [0x2008_0522_u32, 0].map(u32::to_ne_bytes).concat();
        self.push(libc::SYS_capset, vec![Argument::Bytes(header), Argument::Bytes(vec![0; 24])]);
    }

    /// Makes links to granted paths in the scratch directory, which is the working directory.
    pub(super) fn links(&mut self, names: &[GrantedName]) -> io::Result<()> {
        const OWNER_ONLY: c_long = 0o700;
        let here = || Argument::Number(libc::AT_FDCWD.into());
        let above = names.iter().flat_map(|granted| granted.name.ancestors().skip(1));
        // Sorted, so that a directory is made before those in it.
        let directories: BTreeSet<&Path> = above.filter(|path| *path != Path::new("")).collect();
        for directory in directories {
            let arguments = vec![here(), path(directory)?, Argument::Number(OWNER_ONLY)];
            self.push(libc::SYS_mkdirat, arguments);
        }
        for granted in names {
            let arguments = vec![path(&granted.path)?, here(), path(&granted.name)?];
            self.push(libc::SYS_symlinkat, arguments);
        }
        Ok(())
    }

    /// Runs programs in another directory than their scratch directory.
    pub(super) fn change_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.push(libc::SYS_chdir, vec![path(directory)?]);
        Ok(())
    }

    pub(super) fn limit(&mut self, limit: WorkerLimit) {
        let bytes = [limit.soft, limit.hard].map(u64::to_ne_bytes).concat();
        let arguments = vec![
            Argument::Number(0),
            Argument::Number(limit.resource.into()),
            Argument::Bytes(bytes),
            Argument::Number(0),
        ];
        self.push(libc::SYS_prlimit64, arguments);
    }

    /// Restores the default action of a signal, whatever handler the interpreter has installed.
    pub(super) fn reset_signal(&mut self, signal: i32) {
        const SIGNAL_SET_BYTES: c_long = 8;
        let default = Argument::Bytes(vec![0; 32]); // the handler, flags, restorer and mask
        let arguments = vec![
            Argument::Number(signal.into()),
            default,
            Argument::Number(0),
            Argument::Number(SIGNAL_SET_BYTES),
        ];
        self.push(libc::SYS_rt_sigaction, arguments);
    }

    pub(super) fn landlock(&mut self) {
        self.push(libc::SYS_landlock_restrict_self, vec![Argument::Ruleset, Argument::Number(0)]);
    }

    /// Fails for a filter longer than the kernel's header can express.
    pub(super) fn filter(&mut self, filter: &Filter) -> io::Result<()> {
        let length = u16::try_from(filter.instructions().len())
            .map_err(|_| io::Error::other("a seccomp filter has too many instructions"))?;
        let header = [&length.to_ne_bytes()[..], &[0; 6]].concat();
        let arguments = vec![
            Argument::Number(1),
            Argument::Number(0),
            Argument::Record(header, filter.bytes()),
        ];
        self.push(libc::SYS_seccomp, arguments);
        Ok(())
    }

    fn write(&mut self, path: &str, content: &str) {
        let open = vec![
            Argument::Number(libc::AT_FDCWD.into()),
            text(path),
            Argument::Number((libc::O_WRONLY | libc::O_CLOEXEC).into()),
            Argument::Number(0),
        ];
        self.push(libc::SYS_openat, open);
        let length = content.len().cast_signed() as c_long;
        let bytes = Argument::Bytes(content.as_bytes().to_vec());
        self.push(libc::SYS_write, vec![Argument::Opened, bytes, Argument::Number(length)]);
        self.push(libc::SYS_close, vec![Argument::Opened]);
    }

    fn push(&mut self, number: c_long, arguments: Vec<Argument>) {
        self.0.push(SealCall { number, arguments });
    }

    /// The form the harness reads.
    pub(super) fn to_json(&self) -> Value {
        let argument = |argument: &Argument| match argument {
            Argument::Number(number) => json!(number),
            Argument::Bytes(bytes) => json!(hex(bytes)),
            Argument::Record(head, pointed) => json!([hex(head), hex(pointed)]),
            Argument::Ruleset => json!({"the": "ruleset"}),
            Argument::Opened => json!({"the": "opened"}),
        };
        let encoded = |call: &SealCall| {
            let arguments = call.arguments.iter().map(argument);
            std::iter::once(json!(call.number)).chain(arguments).collect()
        };
        Value::Array(self.0.iter().map(encoded).collect())
    }

    /// Makes the calls, in a forked child: it only reads memory that was allocated before the fork.
    pub(super) fn apply(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut opened = 0;
        for call in &self.0 {
            let mut record = [0_u8; 16];
            let mut arguments = [0; 5];
            for (argument, given) in arguments.iter_mut().zip(&call.arguments) {
                *argument = match given {
                    Argument::Number(number) => *number,
                    Argument::Bytes(bytes) => bytes.as_ptr() as c_long,
                    Argument::Record(head, pointed) => {
                        let (start, end) = record.split_at_mut(8);
                        start.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
                        end.copy_from_slice(&(pointed.as_ptr() as u64).to_ne_bytes());
                        record.as_ptr() as c_long
                    }
                    Argument::Ruleset => ruleset.map_or(-1, |it| it.as_raw_fd()).into(),
                    Argument::Opened => opened,
                };
            }
            #[expect(unsafe_code, reason = "a bare system call")]
            // SAFETY: the methods above, the only ones that add calls, give each call the numbers and the
            // buffers it takes; the buffers belong to `self` and `record` and outlive the call.
            let result = unsafe { sys::call(call.number, arguments) }?;
            if call.number == libc::SYS_openat {
                opened = result;
            }
        }
        Ok(())
    }
}

/// A nul-terminated string. The kernel would stop at a nul inside, and no caller's text has one.
fn text(text: &str) -> Argument {
    Argument::Bytes([text.as_bytes(), b"\0"].concat())
}

/// A nul-terminated path.
fn path(path: &Path) -> io::Result<Argument> {
    Ok(Argument::Bytes(c_path(path)?.into_bytes_with_nul()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string does not fail
        text
    })
}
