//! Whether a worker that reached its time limit waits for a service. The kernel's view of its threads and connections
//! decides; what the program says does not count, and neither does a file of `/proc` that cannot be read.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdGetfdFlags, pidfd_getfd};

use super::sandbox::connection_silence;

/// Most threads, and most descriptors, that are examined.
const MAX_ENTRIES: usize = 1024;

/// How a program waits for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceWait {
    /// For its answer. The service has sent nothing for this long.
    ForAnswer(Duration),
    /// For its connection to be accepted.
    ForConnection,
}

/// What a thread waits for, by the system call that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadWait {
    /// A connection.
    Connecting,
    /// Data of this descriptor.
    Reading(RawFd),
    /// Any of several descriptors.
    Polling,
    /// Anything else: a lock, a timer.
    Other,
}

/// How the process waits for a service. `None`: a thread computes, or all wait for something else, or the service has
/// sent something within `patience`.
pub(super) fn service_wait(process: &OwnedFd, pid: Pid, patience: Duration) -> Option<ServiceWait> {
    let waits = thread_waits(pid)?;
    if waits.contains(&ThreadWait::Connecting) {
        return Some(ServiceWait::ForConnection);
    }
    let silences = silences(process, pid);
    let is_read =
        |(number, _): &(&RawFd, &Duration)| waits.contains(&ThreadWait::Reading(**number));
    let read = silences.iter().filter(is_read).map(|(_, silence)| *silence).max();
    // Of several connections it is not known which one a thread polls: all of them must be silent.
    let polled =
        || silences.values().min().copied().filter(|_| waits.contains(&ThreadWait::Polling));
    let silence = read.filter(|it| *it >= patience).or_else(polled)?;
    (silence >= patience).then_some(ServiceWait::ForAnswer(silence))
}

/// For each connection of the process, by descriptor: the time since the other side last sent something.
fn silences(process: &OwnedFd, pid: Pid) -> BTreeMap<RawFd, Duration> {
    let of = |number: RawFd| {
        let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()?;
        Some((number, connection_silence(socket.as_fd())?))
    };
    sockets(pid).into_iter().filter_map(of).collect()
}

/// What the threads of a process wait for; `None`: at least one is running.
fn thread_waits(pid: Pid) -> Option<Vec<ThreadWait>> {
    let folder = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = fs::read_dir(folder).ok()?.flatten().take(MAX_ENTRIES);
    threads
        .map(|thread| thread_wait(&fs::read_to_string(thread.path().join("syscall")).ok()?))
        .collect()
}

/// What a thread waits for: the number of its system call and the arguments, as the kernel writes them. `None`: it runs.
fn thread_wait(text: &str) -> Option<ThreadWait> {
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?; // "running" is not a number
    let first = words.next().and_then(|word| word.strip_prefix("0x"));
    let descriptor = first.and_then(|hex| RawFd::from_str_radix(hex, 16).ok());
    Some(match number {
        libc::SYS_connect => ThreadWait::Connecting,
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => {
            descriptor.map_or(ThreadWait::Other, ThreadWait::Reading)
        }
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait => ThreadWait::Polling,
        _ => ThreadWait::Other,
    })
}

/// The descriptors of a process that are sockets.
fn sockets(pid: Pid) -> Vec<RawFd> {
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let is_socket = |entry: &fs::DirEntry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("socket:")
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter(is_socket).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_thread_waits_for_what_its_system_call_says() {
        let call = |number: libc::c_long| format!("{number} 0x7 0x1 0x2 0x0 0x0 0x0 0x7ff 0x7f1\n");
        for (text, expected) in [
            (call(libc::SYS_recvfrom), Some(ThreadWait::Reading(7))),
            (call(libc::SYS_connect), Some(ThreadWait::Connecting)),
            (call(libc::SYS_ppoll), Some(ThreadWait::Polling)),
            (call(libc::SYS_futex), Some(ThreadWait::Other)),
            (call(libc::SYS_clock_nanosleep), Some(ThreadWait::Other)),
            ("-1 0x7ff 0x7f1\n".to_owned(), Some(ThreadWait::Other)),
            ("running\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(thread_wait(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_connection_is_silent_until_the_other_side_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let silence = |stream: &TcpStream| connection_silence(stream.as_fd()).unwrap();
        client.write_all(b"?").unwrap();
        while silence(&client) < Duration::from_millis(100) {
            std::thread::yield_now();
        }
        let before = silence(&client);
        server.write_all(b"!").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(silence(&client) < before);
        assert_eq!(connection_silence(listener.as_fd()), None, "not a connection");
        let (local, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(connection_silence(local.as_fd()), None, "not a connection to a service");
    }
}
