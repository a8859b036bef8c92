//! Makes connections on behalf of programs whose network grant is neither off nor open.
//!
//! Such a program has an empty network namespace. The kernel passes every `connect` it makes to this thread, which
//! reads the address, decides, connects from the host's network and replaces the program's socket by the connected
//! one. The program never holds a socket that could connect to another host.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::provenance::ObservedSource;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::sys::{self, Notification};
use crate::grants::{LOCALHOST, Network, host_and_port};
use crate::worker::locked;

/// Longest time a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Connections in progress at once, per worker.
const MAX_CONNECTING: usize = 32;
/// Interval at which it is checked whether the program still waits.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Longest address read.
const ADDRESS_BYTES: usize = 128;

/// First of the addresses that represent granted hosts: a range that is not routed (RFC 2544).
const FIRST_PLACEHOLDER: u32 = 0xC612_0001;

/// `/etc/hosts` for a grant: each granted name resolves to an address that only the mediator understands.
pub(super) fn hosts_file(network: &Network) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    if let Network::Hosts(hosts) = network {
        for (granted, address) in hosts.iter().zip(FIRST_PLACEHOLDER..) {
            let Some((name, _)) = host_and_port(granted) else { continue };
            text.push_str(&Ipv4Addr::from_bits(address).to_string());
            text.extend([" ", name, "\n"]);
        }
    }
    text
}

/// Which connections are allowed.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) network: Network,
    /// The hosts are a package manager's sources, which may have private addresses. Only the package manager itself
    /// may connect to them, not the processes it starts.
    pub(super) for_tool: bool,
    /// Where connections are noted.
    pub(super) log: Arc<ConnectionLog>,
}

/// Workers whose connections are noted.
const MAX_WORKERS: usize = 1024;
/// Hosts noted per worker and attempt.
const MAX_NOTED: usize = 64;

/// The connections made for workers, by process group, which a worker cannot leave.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLog(Mutex<BTreeMap<i32, Vec<ObservedSource>>>);

impl ConnectionLog {
    /// Removes and returns those of a worker.
    pub(super) fn take(&self, worker: Pid) -> Vec<ObservedSource> {
        locked(&self.0).remove(&worker.as_raw_nonzero().get()).unwrap_or_default()
    }

    fn note(&self, notification: &Notification, host: &str, port: u16) {
        let uri =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut log = locked(&self.0);
        if log.len() >= MAX_WORKERS {
            log.pop_first(); // of a worker that was ended
        }
        let noted = log.entry(group(notification)).or_default();
        let is_known = noted.iter().any(|it| it.uri == uri);
        if !is_known && noted.len() < MAX_NOTED {
            let fetched_at = crate::upkeep::now().to_string();
            noted.push(ObservedSource { uri, fetched_at, tool: None });
        }
    }
}

/// The process group of the thread that waits.
fn group(notification: &Notification) -> i32 {
    let process = Pid::from_raw(notification.process.cast_signed());
    Pid::as_raw(process.and_then(|it| rustix::process::getpgid(Some(it)).ok()))
}

/// Serves the notifications that arrive at `listener` until the last process of the sandbox has ended.
pub(super) fn start(listener: OwnedFd, terms: Terms, inside: Option<Pid>) -> io::Result<()> {
    let tool = inside.filter(|_| terms.for_tool);
    let serve = move || {
        let (listener, terms) = (Arc::new(listener), Arc::new(terms));
        let connecting = Arc::new(InProgress::default());
        loop {
            let mut polled = [PollFd::new(listener.as_ref(), PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) if polled.iter().any(|it| it.revents().contains(PollFlags::IN)) => {}
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return, // no process is left
            }
            let Ok(notification) = sys::receive_notification(listener.as_fd()) else { continue };
            let Some(slot) = InProgress::claim(&connecting, &notification) else {
                answer(&listener, &notification, Err(Errno::AGAIN));
                continue;
            };
            let (asked, terms) = (Arc::clone(&listener), Arc::clone(&terms));
            let served =
                thread::Builder::new().name("recurgent-connect".to_owned()).spawn(move || {
                    let is_pending = || sys::is_pending(asked.as_fd(), &notification);
                    let made = connect(&notification, &terms, tool, &is_pending);
                    answer(&asked, &notification, made);
                    drop(slot);
                });
            if served.is_err() {
                answer(&listener, &notification, Err(Errno::AGAIN)); // the host cannot start a thread
            }
        }
    };
    thread::Builder::new().name("recurgent-mediator".to_owned()).spawn(serve).map(drop)
}

/// Connections in progress, by the process group of the worker, which it cannot leave: one worker cannot use up the
/// connections of others.
#[derive(Debug, Default)]
struct InProgress(Mutex<BTreeMap<i32, usize>>);

/// One of them, until it is dropped.
struct ConnectionSlot(Arc<InProgress>, i32);

impl InProgress {
    fn claim(this: &Arc<Self>, notification: &Notification) -> Option<ConnectionSlot> {
        let group = group(notification);
        let mut counts = locked(&this.0);
        let count = counts.entry(group).or_default();
        if *count >= MAX_CONNECTING {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot(Arc::clone(this), group))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = locked(&self.0.0);
        if let Some(count) = counts.get_mut(&self.1) {
            *count = count.saturating_sub(1);
        }
        counts.retain(|_, count| *count > 0);
    }
}

/// Gives the program its connection or an error. Does nothing for a program that has ended.
fn answer(listener: &OwnedFd, notification: &Notification, made: Result<OwnedFd, Errno>) {
    let given = made.and_then(|socket| {
        sys::add_descriptor(listener.as_fd(), notification, socket.as_fd())
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    let _ =
        sys::respond(listener.as_fd(), notification, given.err().map_or(0, Errno::raw_os_error));
}

fn connect(
    notification: &Notification,
    terms: &Terms,
    tool: Option<Pid>,
    is_pending: &dyn Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    if terms.for_tool && (tool.is_none() || leader(notification) != tool) {
        return Err(Errno::ACCESS);
    }
    let requested = requested(notification).ok_or(Errno::AFNOSUPPORT)?;
    let program_socket = descriptor(notification).ok_or(Errno::ACCESS)?;
    if rustix::net::sockopt::socket_type(&program_socket) != Ok(SocketType::STREAM) {
        return Err(Errno::NETUNREACH);
    }
    let destination = destination(requested, terms)?;
    let stream = connect_to_any(&destination.addresses, is_pending)?;
    terms.log.note(notification, &destination.host, requested.port());
    let flags = rustix::fs::fcntl_getfl(&program_socket)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&stream, OFlags::empty())?;
    }
    Ok(stream)
}

fn connect_to_any(
    addresses: &[SocketAddr],
    is_pending: &dyn Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    let mut last = Errno::ACCESS;
    for address in addresses {
        match open_stream(*address, is_pending) {
            Ok(stream) => return Ok(stream),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// Connects while the program waits. The returned socket is non-blocking.
fn open_stream(address: SocketAddr, is_pending: &dyn Fn() -> bool) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno),
    }
    let deadline = Instant::now() + CONNECT_LIMIT;
    while Instant::now() < deadline && is_pending() {
        let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&POLL_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                return rustix::net::sockopt::socket_error(&socket)?.map(|()| socket);
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::TIMEDOUT)
}

/// Where a granted connection leads.
#[derive(Debug)]
struct Destination {
    /// As it was granted.
    host: String,
    addresses: Vec<SocketAddr>,
}

/// The real addresses of the requested one; refused unless granted.
fn destination(requested: SocketAddr, terms: &Terms) -> Result<Destination, Errno> {
    let ip = requested.ip().to_canonical();
    match &terms.network {
        Network::Loopback if ip.is_loopback() => {
            Ok(Destination { host: ip.to_string(), addresses: vec![requested] })
        }
        Network::Hosts(hosts) => {
            let granted = hosts.iter().zip(FIRST_PLACEHOLDER..).find(|(granted, placeholder)| {
                let Some((name, port)) = host_and_port(granted) else { return false };
                let is_it = ip == IpAddr::from(Ipv4Addr::from_bits(*placeholder))
                    || name.parse::<IpAddr>().is_ok_and(|literal| literal == ip)
                    || (name == LOCALHOST && ip.is_loopback());
                is_it && port.is_none_or(|port| port == requested.port())
            });
            let (granted, _) = granted.ok_or(Errno::ACCESS)?;
            let (name, _) = host_and_port(granted).ok_or(Errno::ACCESS)?;
            let found =
                (name, requested.port()).to_socket_addrs().map_err(|_| Errno::HOSTUNREACH)?;
            let allowed = found.filter(|address| terms.for_tool || may_reach(name, address.ip()));
            Ok(Destination { host: name.to_owned(), addresses: allowed.collect() })
        }
        Network::Loopback | Network::Off | Network::Open => Err(Errno::ACCESS),
    }
}

/// Whether a granted name or address may lead to this address. Only `localhost` and an address itself may lead to a
/// private one.
fn may_reach(name: &str, ip: IpAddr) -> bool {
    match name {
        LOCALHOST => ip.is_loopback(),
        _ if name.parse::<IpAddr>().is_ok() => true,
        _ => is_public(ip),
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            let shared = first == 100 && (64..128).contains(&second);
            let benchmark = first == 198 && (18..20).contains(&second);
            !(ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_broadcast()
                || shared
                || benchmark
                || first == 0)
        }
        IpAddr::V6(ip) => {
            // Gateways translate these to the IPv4 address they contain (RFC 6052, RFC 3056).
            let translated =
                matches!(ip.segments(), [0x64, 0xFF9B, ..] | [0x2002, ..] | [0, 0, 0, 0, 0, 0, ..]);
            let is_site_local = ip.segments().first().is_some_and(|it| it & 0xFFC0 == 0xFEC0);
            !(translated
                || ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unique_local()
                || is_site_local
                || ip.is_unicast_link_local())
        }
    }
}

/// The address a program requested, copied once from its memory.
fn requested(notification: &Notification) -> Option<SocketAddr> {
    let [_, address, length, ..] = notification.arguments;
    let length = usize::try_from(length).ok()?.min(ADDRESS_BYTES);
    let mut bytes = [0; ADDRESS_BYTES];
    let read = sys::read_memory(notification.process, address, bytes.get_mut(..length)?).ok()?;
    let bytes = bytes.get(..read)?;
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
            Some(SocketAddrV6::new(ip, port, 0, 0).into())
        }
        _ => None,
    }
}

/// The program's own socket.
fn descriptor(notification: &Notification) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(leader(notification)?, PidfdFlags::empty()).ok()?;
    let [number, ..] = notification.arguments;
    let number = i32::try_from(number).ok()?;
    rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

/// The process of the waiting thread.
fn leader(notification: &Notification) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", notification.process)).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    Pid::from_raw(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_granted_is_reached() {
        let hosts = |list: &[&str]| Network::Hosts(list.iter().map(|&it| it.to_owned()).collect());
        for (network, requested, granted) in [
            (Network::Loopback, "127.0.0.1:80", true),
            (Network::Loopback, "[::1]:80", true),
            (Network::Loopback, "[::ffff:127.0.0.1]:80", true),
            (Network::Loopback, "10.0.0.1:80", false),
            (Network::Loopback, "169.254.169.254:80", false),
            (hosts(&["192.0.2.7"]), "192.0.2.7:443", true),
            (hosts(&["192.0.2.7:443"]), "192.0.2.7:443", true),
            (hosts(&["192.0.2.7:443"]), "192.0.2.7:80", false),
            (hosts(&["192.0.2.7"]), "127.0.0.1:443", false),
            (hosts(&["192.0.2.7", "10.1.2.3"]), "198.18.0.2:1", true),
            (hosts(&["192.0.2.7"]), "198.18.0.2:1", false),
            (hosts(&["[::1]"]), "[::1]:80", true),
            (hosts(&["[::1]:80"]), "[::1]:81", false),
            (hosts(&["localhost"]), "127.0.0.1:80", true),
            (hosts(&["localhost:80"]), "127.0.0.1:81", false),
            (hosts(&["localhost"]), "10.0.0.7:80", false),
            (Network::Off, "127.0.0.1:80", false),
        ] {
            let terms = Terms { network, for_tool: false, log: Arc::default() };
            let found = destination(requested.parse().unwrap(), &terms);
            assert_eq!(found.is_ok(), granted, "{terms:?} {requested}: {found:?}");
        }
        for (name, ip, reached) in [
            ("a.example", "1.1.1.1", true),
            ("a.example", "127.0.0.1", false),
            ("a.example", "10.0.0.7", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("localhost", "127.0.0.1", true),
            ("localhost", "10.0.0.7", false),
        ] {
            assert_eq!(may_reach(name, ip.parse().unwrap()), reached, "{name} {ip}");
        }
    }

    #[test]
    fn private_addresses_are_not_public() {
        for (ip, public) in [
            ("1.1.1.1", true),
            ("2606:4700::1111", true),
            ("10.0.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:10.0.0.1", false),
            ("fd00::1", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("2002:a00:1::1", false),
            ("::a00:1", false),
            ("fec0::1", false),
        ] {
            assert_eq!(is_public(ip.parse().unwrap()), public, "{ip}");
        }
    }

    #[test]
    fn names_resolve_to_addresses_that_are_not_routed() {
        let network: Network = "a.example,b.example:443".parse().unwrap();
        assert_eq!(
            hosts_file(&network),
            "127.0.0.1 localhost\n::1 localhost\n198.18.0.1 a.example\n198.18.0.2 b.example\n"
        );
    }
}
