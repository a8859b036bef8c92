//! What the host learns of a process that goes inside.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::Pid;

use super::mediator::{self, Terms};

/// What is told of a process that is about to go inside.
#[derive(Debug)]
pub(crate) struct SpawnHandshake {
    /// Its number, where namespaces give it another process.
    pub(super) number: Option<OwnedFd>,
    /// The descriptor its connections are put to, and what is granted.
    pub(super) connections: Option<(OwnedFd, Terms)>,
}

impl SpawnHandshake {
    /// The process inside: the one started, unless namespaces made it another. To be asked once the
    /// command, and with it the other end, is gone.
    pub(crate) fn pid(&self, started: Option<Pid>) -> Option<Pid> {
        let Some(told) = &self.number else { return started };
        let mut number = [0; 4];
        File::from(told.try_clone().ok()?).read_exact(&mut number).ok()?;
        Pid::from_raw(i32::from_ne_bytes(number))
    }

    /// Whether the process started ends at once, leaving another inside.
    pub(crate) fn is_another(&self) -> bool {
        self.number.is_some()
    }

    /// Starts making connections for it, where that is granted.
    pub(crate) fn attend(self, inside: Option<Pid>) -> io::Result<()> {
        let Some((told, terms)) = self.connections else { return Ok(()) };
        mediator::start(receive_descriptor(&told)?, terms, inside)
    }
}

fn receive_descriptor(from: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut attached, flags)?;
    let mut descriptor = None;
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    descriptor.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
