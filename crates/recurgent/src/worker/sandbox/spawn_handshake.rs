//! What the host learns about a process that enters its sandbox.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::Pid;

use super::mediator::{self, Terms};

/// The host's ends of the channels on which a starting process reports.
#[derive(Debug)]
pub(crate) struct SpawnHandshake {
    /// Receives the process number, where namespaces make another process the one that runs.
    pub(super) number: Option<OwnedFd>,
    /// Receives the listener for its connections, and what they may reach.
    pub(super) connections: Option<(OwnedFd, Terms)>,
    /// Receives the layer over its workspace.
    pub(super) layer: Option<OwnedFd>,
}

impl SpawnHandshake {
    /// The process inside: the one started, unless namespaces made it another. Call it after the command,
    /// which holds the other end, was dropped.
    pub(crate) fn pid(&self, started: Option<Pid>) -> Option<Pid> {
        let Some(receiver) = &self.number else { return started };
        let mut number = [0; 4];
        File::from(receiver.try_clone().ok()?).read_exact(&mut number).ok()?;
        Pid::from_raw(i32::from_ne_bytes(number))
    }

    /// Whether the started process ends at once and leaves another inside.
    pub(crate) fn is_another(&self) -> bool {
        self.number.is_some()
    }

    /// The channel on which the host receives the layer over a workspace.
    pub(crate) fn take_layer_channel(&mut self) -> Option<OwnedFd> {
        self.layer.take()
    }

    /// Starts making connections for it, where the grant asks for that.
    pub(crate) fn serve_connections(self, inside: Option<Pid>) -> io::Result<()> {
        let Some((receiver, terms)) = self.connections else { return Ok(()) };
        mediator::start(receive_descriptor(&receiver)?, terms, inside)
    }
}

/// Receives what a process sent before it started its interpreter.
pub(super) fn receive_descriptor(from: &OwnedFd) -> io::Result<OwnedFd> {
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
