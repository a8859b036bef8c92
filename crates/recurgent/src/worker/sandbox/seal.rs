//! What a forked worker does to itself before it may run a program.
//!
//! The zygote that forks it is an interpreter, so these steps are data: a list of system calls, made
//! here, carried out by the harness of either guest, and by the probe.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_long;
use serde_json::{Value, json};

use super::seccomp::{Filter, WORKER_NAMESPACES};
use super::sys;
use super::view::SCRATCH;

/// One system call.
#[derive(Debug)]
pub(super) struct Step {
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
    /// The descriptor of the worker's ruleset.
    Ruleset,
    /// What was opened last.
    Opened,
}

/// A limit set in the worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerLimit {
    pub(super) resource: u32,
    /// What the worker is told of.
    pub(super) value: u64,
    /// What the kernel ends it at.
    pub(super) most: u64,
}

/// The steps of a worker; each layer adds its own.
#[derive(Debug, Default)]
pub(super) struct Seal(Vec<Step>);

impl Seal {
    /// Waits for the one child there is.
    pub(super) fn await_child(&mut self) {
        let any = Argument::Number(-1);
        let nothing = || Argument::Number(0);
        self.step(libc::SYS_wait4, vec![any, nothing(), nothing(), nothing()]);
    }

    /// Whether others of the same user may look into the process.
    pub(super) fn open_to_others(&mut self, open: bool) {
        let set = Argument::Number(libc::PR_SET_DUMPABLE.into());
        let arguments = vec![set, Argument::Number(open.into())];
        self.step(libc::SYS_prctl, arguments);
    }

    /// Own users and mounts, with a scratch space nobody else sees, which ends with the worker.
    pub(super) fn own_scratch(&mut self, id: u32, bytes: u64, files: u64) {
        self.step(libc::SYS_unshare, vec![Argument::Number(WORKER_NAMESPACES.into())]);
        self.write("/proc/self/setgroups", "deny");
        for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
            self.write(map, &format!("{id} {id} 1"));
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let options = format!("size={bytes},nr_inodes={files},mode=700");
        self.step(
            libc::SYS_mount,
            vec![
                text("tmpfs"),
                text(SCRATCH),
                text("tmpfs"),
                Argument::Number(c_long::try_from(flags).unwrap_or_default()),
                text(&options),
            ],
        );
        self.step(libc::SYS_chdir, vec![text(SCRATCH)]);
        let header = [0x2008_0522_u32, 0].map(u32::to_ne_bytes).concat();
        self.step(libc::SYS_capset, vec![Argument::Bytes(header), Argument::Bytes(vec![0; 24])]);
    }

    pub(super) fn limit(&mut self, limit: WorkerLimit) {
        let bytes = [limit.value, limit.most].map(u64::to_ne_bytes).concat();
        let arguments = vec![
            Argument::Number(0),
            Argument::Number(limit.resource.into()),
            Argument::Bytes(bytes),
            Argument::Number(0),
        ];
        self.step(libc::SYS_prlimit64, arguments);
    }

    /// Has a signal end the worker, whatever its interpreter would make of it.
    pub(super) fn end_by(&mut self, signal: i32) {
        const SIGNAL_SET_BYTES: c_long = 8;
        let default = Argument::Bytes(vec![0; 32]); // the handler, flags, restorer and mask
        let arguments = vec![
            Argument::Number(signal.into()),
            default,
            Argument::Number(0),
            Argument::Number(SIGNAL_SET_BYTES),
        ];
        self.step(libc::SYS_rt_sigaction, arguments);
    }

    pub(super) fn landlock(&mut self) {
        self.step(libc::SYS_landlock_restrict_self, vec![Argument::Ruleset, Argument::Number(0)]);
    }

    pub(super) fn filter(&mut self, filter: &Filter) {
        let length = u16::try_from(filter.instructions().len()).unwrap_or(0);
        let header = [&length.to_ne_bytes()[..], &[0; 6]].concat();
        let arguments = vec![
            Argument::Number(1),
            Argument::Number(0),
            Argument::Record(header, filter.bytes()),
        ];
        self.step(libc::SYS_seccomp, arguments);
    }

    fn write(&mut self, path: &str, content: &str) {
        let open = vec![
            Argument::Number(libc::AT_FDCWD.into()),
            text(path),
            Argument::Number((libc::O_WRONLY | libc::O_CLOEXEC).into()),
            Argument::Number(0),
        ];
        self.step(libc::SYS_openat, open);
        let length = c_long::try_from(content.len()).unwrap_or(0);
        let bytes = Argument::Bytes(content.as_bytes().to_vec());
        self.step(libc::SYS_write, vec![Argument::Opened, bytes, Argument::Number(length)]);
        self.step(libc::SYS_close, vec![Argument::Opened]);
    }

    fn step(&mut self, number: c_long, arguments: Vec<Argument>) {
        self.0.push(Step { number, arguments });
    }

    /// As the harness reads it.
    pub(super) fn to_json(&self) -> Value {
        let argument = |argument: &Argument| match argument {
            Argument::Number(number) => json!(number),
            Argument::Bytes(bytes) => json!(hex(bytes)),
            Argument::Record(head, pointed) => json!([hex(head), hex(pointed)]),
            Argument::Ruleset => json!({"the": "ruleset"}),
            Argument::Opened => json!({"the": "opened"}),
        };
        let step = |step: &Step| {
            let arguments = step.arguments.iter().map(argument);
            std::iter::once(json!(step.number)).chain(arguments).collect()
        };
        Value::Array(self.0.iter().map(step).collect())
    }

    /// Carries it out, in a forked child: bare system calls on memory made before.
    pub(super) fn apply(&self, ruleset: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut opened = 0;
        for step in &self.0 {
            let mut record = [0_u8; 16];
            let mut arguments = [0; 5];
            for (argument, given) in arguments.iter_mut().zip(&step.arguments) {
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
            let result = sys::call(step.number, arguments)?;
            if step.number == libc::SYS_openat {
                opened = result;
            }
        }
        Ok(())
    }
}

fn text(text: &str) -> Argument {
    Argument::Bytes(CString::new(text).unwrap_or_default().into_bytes_with_nul())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string does not fail
        text
    })
}
